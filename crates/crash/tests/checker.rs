//! Tests of the checker itself: the states that it accepts, and the errors that it finds.

use std::collections::BTreeMap;

use forebay_client::{Attributes, CallId, FileKind, Handle, LinkError};
use forebay_crash::check::{Compared, Mismatch, Then, compare};
use forebay_crash::content::{DataOp, Payload};
use forebay_crash::history::{Clock, Stamp};
use forebay_crash::ledger::{File, Identity, Ledger, Pending, Unstable};
use forebay_crash::observe::{Seen, View};
use forebay_crash::tree::{Kind, NameOp, NodeId, OWN, Place};

/// A server whose state a test sets.
#[derive(Clone, Default)]
struct Shelf {
    own: BTreeMap<String, Seen>,
    bytes: BTreeMap<Handle, Vec<u8>>,
}

impl View for Shelf {
    fn tree(
        &mut self,
        _directory: &Handle,
        path: &str,
    ) -> Result<BTreeMap<String, Seen>, LinkError> {
        Ok(match path {
            "own" => self.own.clone(),
            _ => BTreeMap::new(),
        })
    }

    fn read(&mut self, file: &Handle, _size: u64) -> Result<Vec<u8>, LinkError> {
        Ok(self.bytes[file].clone())
    }
}

impl Shelf {
    /// Adds a file with these bytes under this name.
    fn with(mut self, name: &str, fileid: u64, bytes: &[u8]) -> Shelf {
        let handle = handle(fileid);
        let attributes = Attributes {
            kind: FileKind::Regular,
            mode: 0o644,
            nlink: 1,
            size: bytes.len() as u64,
            fileid,
            mtime: (7, 0),
            ctime: (7, 0),
        };
        let seen = Seen {
            handle: handle.clone(),
            attributes,
            cookie: fileid + 100,
            target: None,
        };
        self.own.insert(format!("own/{name}"), seen);
        self.bytes.insert(handle, bytes.to_vec());
        self
    }

    fn change(mut self, name: &str, change: impl FnOnce(&mut Seen)) -> Shelf {
        change(self.own.get_mut(&format!("own/{name}")).unwrap());
        self
    }
}

fn handle(fileid: u64) -> Handle {
    Handle(fileid.to_be_bytes().to_vec())
}

fn identity(fileid: u64) -> Identity {
    Identity {
        handle: handle(fileid),
        fileid,
    }
}

/// One writer whose operations a test enters by hand.
struct Story {
    ledger: Ledger,
    clock: Clock,
    calls: u32,
}

impl Story {
    fn new() -> Story {
        Story {
            ledger: Ledger::new(0, identity(1), identity(2)),
            clock: Clock::default(),
            calls: 0,
        }
    }

    fn invoke(&mut self, pending: Pending) -> (CallId, Pending) {
        self.calls += 1;
        let call = CallId(self.calls);
        self.ledger.invoke(call, pending.clone(), self.clock.tick());
        (call, pending)
    }

    fn answer(&mut self, (call, pending): (CallId, Pending)) {
        self.ledger.pending.remove(&call).unwrap();
        let now = self.clock.tick();
        match &pending {
            Pending::Name { op, .. } => self.ledger.name_answered(op, false, now),
            _ => self.ledger.data_answered(&pending, now, None),
        }
    }

    fn making(&mut self, name: &str, fileid: u64) -> (NodeId, Pending) {
        let node = self.ledger.new_node();
        self.ledger.files.insert(node, File::new(0, 0, 1000, 0o644));
        self.ledger.identities.insert(node, identity(fileid));
        let op = NameOp::Make {
            place: place(name),
            node,
            kind: Kind::File,
        };
        (node, Pending::Name { op, done: None })
    }

    /// An empty file whose CREATE was answered.
    fn make(&mut self, name: &str, fileid: u64) -> NodeId {
        let (node, pending) = self.making(name, fileid);
        let call = self.invoke(pending);
        self.answer(call);
        node
    }

    fn write(&mut self, node: NodeId, bytes: &[u8], stable: bool) {
        let call = self.invoke(writing(node, bytes, stable));
        self.answer(call);
    }

    fn look(&mut self, shelf: &Shelf, floor: Stamp, then: Then) -> Result<Compared, Mismatch> {
        compare(&mut shelf.clone(), &mut [&mut self.ledger], floor, then)
    }

    /// Compares after a SIGKILL: every answered operation must be there.
    fn after_kill(&mut self, shelf: &Shelf) -> Result<Compared, Mismatch> {
        let floor = self.clock.tick();
        self.look(shelf, floor, Then::GoOn)
    }
}

fn place(name: &str) -> Place {
    Place {
        directory: OWN,
        name: name.to_owned(),
    }
}

/// A WRITE at the beginning of a file.
fn writing(node: NodeId, bytes: &[u8], stable: bool) -> Pending {
    Pending::Data {
        node,
        parts: vec![0],
        op: DataOp::Write {
            offset: 0,
            length: bytes.len(),
            payload: Payload::Bytes(bytes.into()),
        },
        stable,
        done: None,
    }
}

fn found(result: Result<Compared, Mismatch>, part: &str) {
    let error = result.expect_err("this must be found").to_string();
    assert!(error.contains(part), "{part:?} is not in {error:?}");
}

#[test]
fn everything_that_was_answered_is_there_and_nothing_else() {
    let mut story = Story::new();
    let file = story.make("a", 10);
    story.write(file, b"one", false);
    let compared = story
        .after_kill(&Shelf::default().with("a", 10, b"one"))
        .unwrap();
    assert_eq!((compared.files, compared.bytes, compared.names), (1, 3, 1));
}

#[test]
fn an_answered_write_that_is_gone_is_found() {
    let mut story = Story::new();
    let file = story.make("a", 10);
    story.write(file, b"one", false);
    story.write(file, b"two", false);
    found(
        story.after_kill(&Shelf::default().with("a", 10, b"one")),
        "not that of one moment, or it is older",
    );
}

#[test]
fn bytes_of_no_state_are_found() {
    let mut story = Story::new();
    let file = story.make("a", 10);
    story.write(file, b"one", false);
    found(
        story.after_kill(&Shelf::default().with("a", 10, b"oxe")),
        "1 bytes that differ (first Some(1))",
    );
    found(
        story.after_kill(&Shelf::default().with("a", 10, b"onee")),
        "length 4 instead of 3",
    );
}

#[test]
fn a_name_that_is_gone_or_strange_is_found() {
    let mut story = Story::new();
    story.make("a", 10);
    found(story.after_kill(&Shelf::default()), "a is missing");
    let shelf = Shelf::default().with("a", 10, b"").with("b", 11, b"");
    found(story.after_kill(&shelf), "own/b should not be there");
}

#[test]
fn an_unanswered_call_may_have_been_executed_or_not() {
    for executed in [false, true] {
        let mut story = Story::new();
        let file = story.make("a", 10);
        story.write(file, b"one", false);
        let (call, _) = story.invoke(writing(file, b"two", false));
        let bytes: &[u8] = if executed { b"two" } else { b"one" };
        story
            .after_kill(&Shelf::default().with("a", 10, bytes))
            .unwrap();
        // The comparison has settled it: a contradicting answer is an error.
        assert!(
            matches!(story.ledger.pending[&call], Pending::Data { done, .. } if done == Some(executed))
        );
        assert_eq!(story.ledger.files[&file].parts[0].now.bytes, bytes);
    }
}

#[test]
fn a_create_under_way_is_settled_by_its_name() {
    for executed in [false, true] {
        let mut story = Story::new();
        let (_, pending) = story.making("a", 10);
        let (call, _) = story.invoke(pending);
        let shelf = match executed {
            true => Shelf::default().with("a", 10, b""),
            false => Shelf::default(),
        };
        story.after_kill(&shelf).unwrap();
        assert!(
            matches!(story.ledger.pending[&call], Pending::Name { done, .. } if done == Some(executed))
        );
    }
}

#[test]
fn a_lost_machine_leaves_one_moment_of_the_past() {
    let story = || {
        let mut story = Story::new();
        let (a, b) = (story.make("a", 10), story.make("b", 11));
        story.write(a, b"a1", true);
        story.write(b, b"b1", true);
        story.write(a, b"a2", true);
        story
    };
    let state = |a: &[u8], b: &[u8]| Shelf::default().with("a", 10, a).with("b", 11, b);
    for (a, b) in [("", ""), ("a1", ""), ("a1", "b1"), ("a2", "b1")] {
        let shelf = state(a.as_bytes(), b.as_bytes());
        story().look(&shelf, 0, Then::Forget).unwrap();
    }
    // A later moment of one file beside an earlier one of another.
    for (a, b) in [("", "b1"), ("a2", "")] {
        let shelf = state(a.as_bytes(), b.as_bytes());
        found(
            story().look(&shelf, 0, Then::Forget),
            "not that of one moment",
        );
    }
    // A name without those that were made before it.
    found(
        story().look(&Shelf::default().with("b", 11, b"b1"), 0, Then::Forget),
        "own/a is missing",
    );
}

#[test]
fn a_bucket_that_is_older_than_was_promised_is_found() {
    let story = || {
        let mut story = Story::new();
        let file = story.make("a", 10);
        story.write(file, b"one", false);
        let promised = story.clock.tick();
        story.write(file, b"two", false);
        (story, promised)
    };
    for bytes in [b"one", b"two"] {
        let (mut story, promised) = story();
        let shelf = Shelf::default().with("a", 10, bytes);
        story.look(&shelf, promised, Then::Forget).unwrap();
    }
    let (mut story, promised) = story();
    let shelf = Shelf::default().with("a", 10, b"");
    found(story.look(&shelf, promised, Then::Forget), "older than");
}

#[test]
fn a_power_cut_may_take_unstable_writes_and_nothing_stable() {
    let mut story = Story::new();
    let file = story.make("a", 10);
    story.write(file, b"one", true);
    story.write(file, b"two", false);
    found(
        story.look(&Shelf::default().with("a", 10, b""), 0, Then::SendAgain),
        "none of the states that are allowed after 1 of 2",
    );
    let shelf = Shelf::default().with("a", 10, b"one");
    story.look(&shelf, 0, Then::SendAgain).unwrap();
    // Its client still intends the newer content, and must send it again.
    let part = &story.ledger.files[&file].parts[0];
    assert_eq!(
        (&part.now.bytes[..], &part.meant.bytes[..]),
        (&b"one"[..], &b"two"[..])
    );
}

#[test]
fn what_a_client_has_to_send_again_is_what_has_another_verifier() {
    let mut file = File::new(0, 0, 100, 0o644);
    for verifier in [[1; 8], [2; 8]] {
        file.unstable.push(Unstable {
            part: 0,
            offset: 0,
            length: 1,
            verifier,
        });
    }
    assert_eq!(file.lost([1; 8]), Some(1));
    assert_eq!(file.lost([2; 8]), Some(0));
}

#[test]
fn attributes_handles_and_cookies_that_change_are_found() {
    let shelf = || Shelf::default().with("a", 10, b"one");
    let story = || {
        let mut story = Story::new();
        let file = story.make("a", 10);
        story.write(file, b"one", false);
        story.after_kill(&shelf()).unwrap();
        story
    };
    let links = shelf().change("a", |seen| seen.attributes.nlink = 2);
    found(story().after_kill(&links), "2 links instead of 1");
    let mode = shelf().change("a", |seen| seen.attributes.mode = 0o600);
    found(story().after_kill(&mode), "mode 600 instead of 644");
    let inode = shelf().change("a", |seen| seen.attributes.fileid = 12);
    found(story().after_kill(&inode), "inode 12 instead of 10");
    let cookie = shelf().change("a", |seen| seen.cookie = 5);
    found(story().after_kill(&cookie), "cookie 5 instead of 110");
    let mut other = shelf().with("a", 10, b"one");
    other.bytes.insert(handle(13), b"one".to_vec());
    let other = other.change("a", |seen| seen.handle = handle(13));
    found(story().after_kill(&other), "another file handle");
}

#[test]
fn the_mtime_that_an_answer_told_stays() {
    let mut story = Story::new();
    let file = story.make("a", 10);
    let (call, pending) = story.invoke(writing(file, b"one", false));
    story.ledger.pending.remove(&call);
    let now = story.clock.tick();
    story.ledger.data_answered(&pending, now, Some((8, 0)));
    found(
        story.after_kill(&Shelf::default().with("a", 10, b"one")),
        "mtime (7, 0) instead of Some((8, 0))",
    );
    let right = Shelf::default()
        .with("a", 10, b"one")
        .change("a", |seen| seen.attributes.mtime = (8, 0));
    story.after_kill(&right).unwrap();
}

#[test]
fn slots_of_a_file_are_objects_of_their_own() {
    let mut story = Story::new();
    let file = story.make("a", 10);
    story.ledger.files.insert(file, File::new(2, 4, 8, 0o644));
    let data = |parts: Vec<usize>, op| Pending::Data {
        node: file,
        parts,
        op,
        stable: false,
        done: None,
    };
    let sized = story.invoke(data(vec![0, 1], DataOp::Resize(8)));
    story.answer(sized);
    let write = |offset, bytes: &[u8]| DataOp::Write {
        offset,
        length: 4,
        payload: Payload::Bytes(bytes.into()),
    };
    // Both in flight at the same time: each may be there without the other.
    let first = story.invoke(data(vec![0], write(0, b"aaaa")));
    let second = story.invoke(data(vec![1], write(4, b"bbbb")));
    story.answer(second);
    let lost = Shelf::default().with("a", 10, b"aaaa\0\0\0\0");
    found(story.after_kill(&lost), "slot at 4");
    let right = Shelf::default().with("a", 10, b"\0\0\0\0bbbb");
    story.after_kill(&right).unwrap();
    assert!(story.ledger.pending.contains_key(&first.0));
}
