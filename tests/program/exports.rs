//! Exports of a running gateway: its reports about them, and changes by SIGHUP.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::nfs::{Client, Stable, Status};
use crate::support::{Gateway, Place};

const ACCES: Status = Status(13);
const ROFS: Status = Status(30);

/// A gateway whose configuration file a test can replace.
struct Configured {
    place: Place,
    gateway: Gateway,
}

impl Configured {
    fn start(text: &str) -> Configured {
        let place = Place::new();
        let file = place.path("forebay.toml");
        fs::write(&file, text).unwrap();
        let gateway = place.serve_with("data", &[&format!("--config={}", file.display())]);
        Configured { place, gateway }
    }

    /// Writes the file, sends SIGHUP, and waits until the gateway prints `says` once more.
    #[track_caller]
    fn change(&self, text: &str, says: &str) {
        fs::write(self.place.path("forebay.toml"), text).unwrap();
        let said = |gateway: &Gateway| gateway.messages().matches(says).count();
        let before = said(&self.gateway);
        self.gateway.hang_up();
        let deadline = Instant::now() + Duration::from_secs(60);
        while said(&self.gateway) == before {
            let messages = self.gateway.messages();
            assert!(Instant::now() < deadline, "{says:?} is not in {messages}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Output of `forebay exports`.
    fn shown(&self) -> String {
        let shown = self.gateway.ask(&["exports"]);
        assert!(shown.status.success(), "{}", shown.stderr);
        shown.stdout
    }
}

/// Bytes of all packs in the bucket.
fn pack_bytes(place: &Place) -> u64 {
    let folders = fs::read_dir(place.bucket().join("packs")).into_iter();
    let packs = folders.flatten().flat_map(|folder| {
        let folder = fs::read_dir(folder.unwrap().path()).unwrap();
        folder.map(|pack| pack.unwrap().metadata().unwrap().len())
    });
    packs.sum()
}

#[test]
fn each_export_compresses_as_its_own_setting_says() {
    const LEN: usize = 1 << 20;
    let words = b"the same words again and again, ".repeat(LEN / 32);
    let text = "[[export]]\npath = \"/\"\n\n[[export]]\npath = \"/raw\"\ncompression = \"off\"\n";
    let configured = Configured::start(text);
    let gateway = &configured.gateway;
    let mut client = gateway.client();
    client.mkdir("raw");
    client.put("compressed", &words);
    gateway.flush();
    let compressed = pack_bytes(&configured.place);
    assert!(
        compressed > 0 && compressed < LEN as u64 / 20,
        "{compressed}"
    );
    let write_raw = |client: &mut Client, name: &str| {
        let raw = client.mount_at("/raw").unwrap();
        let file = client.create(&raw, name.as_bytes());
        client.write(&file, 0, &words, Stable::Unstable).unwrap();
        client.commit(&file);
        gateway.flush();
        pack_bytes(&configured.place)
    };
    let raw = write_raw(&mut client, "raw");
    assert!(raw >= compressed + LEN as u64, "{raw}");
    // Switched on by a signal.
    configured.change(&text.replace("\"off\"", "\"auto\""), IN_FORCE);
    let again = write_raw(&mut client, "again");
    assert!(again < raw + LEN as u64 / 20, "{again}");
    assert_eq!(client.get("compressed").unwrap(), words);
}

const IN_FORCE: &str = "SIGHUP: the exports of the configuration are in force";

#[test]
fn sighup_changes_the_rules_of_a_client_that_writes() {
    let configured = Configured::start("[[export]]\npath = \"/\"\n");
    let gateway = &configured.gateway;
    let mut client = gateway.client();
    let root = client.mount();
    let log = client.create(&root, b"log");
    let (written, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let count = written.load(Ordering::Relaxed);
                let line = format!("{count:08}");
                client.write(&log, count * 8, line.as_bytes(), Stable::Unstable)?;
                written.store(count + 1, Ordering::Relaxed);
            }
            Ok::<(), Status>(())
        });
        let goes_on = || {
            let until = written.load(Ordering::Relaxed) + 100;
            while written.load(Ordering::Relaxed) < until {
                assert!(!writer.is_finished(), "{}", gateway.messages());
                thread::sleep(Duration::from_millis(1));
            }
        };
        goes_on();
        // A new export and a changed setting do not affect the writer.
        let more = "checkpoint_interval = \"6s\"\n[[export]]\npath = \"/\"\n[[export]]\npath = \"/more\"\n\
                    clients = [\"10.0.0.0/8\"]\n";
        configured.change(more, IN_FORCE);
        goes_on();
        gateway.says("checkpoint_interval = 6s");
        gateway.says("takes effect at the next start; until then it is 5s");
        let before = configured.shown();
        assert!(
            before.contains("/more 10.0.0.0/8(rw,root_squash,"),
            "{before}"
        );
        // An invalid configuration changes nothing.
        configured.change("[[export]]\npath = \"more\"\n", "nothing was changed");
        gateway.says("forebay.toml:2: path = `more`: has to begin with /");
        goes_on();
        assert_eq!(configured.shown(), before);
        configured.change("access = \"ro\"\n[[export]]\npath = \"/\"\n", IN_FORCE);
        let deadline = Instant::now() + Duration::from_secs(60);
        while !writer.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(writer.join().unwrap(), Err(ROFS));
    });
    // With its existing handle, on its existing connection.
    configured.change("[[export]]\npath = \"/\"\n", IN_FORCE);
    let count = written.load(Ordering::Relaxed);
    client
        .write(&log, count * 8, b"the last", Stable::FileSync)
        .unwrap();
    let last = client.read(&log, (count - 1) * 8, 16).unwrap();
    let expected = format!("{:08}the last", count - 1);
    assert_eq!(String::from_utf8(last).unwrap(), expected);
    configured.gateway.stop_cleanly();
}

#[test]
fn sighup_before_and_after_the_work_ends_nothing() {
    let configured = Configured::start("");
    // Several signals at once have the effect of one.
    (0..20).for_each(|_| configured.gateway.hang_up());
    configured.gateway.says(IN_FORCE);
    configured.gateway.client().put("file", b"text");
    configured.gateway.stop_cleanly();
}

#[test]
fn exports_are_shown_in_words_of_exports_5() {
    let configured = Configured::start(
        "[[export]]\npath = \"/\"\nclients = [\"127.0.0.1\", \"10.0.0.0/255.0.0.0\"]\n\
         [[export]]\npath = \"/\"\nclients = [\"*\"]\naccess = \"ro\"\nsquash = \"all_squash\"\n\
         anonuid = 150\nanongid = 100\nsec = [\"sys\", \"none\"]\nsource_port = \"secure\"\ncommit = \"async\"\n",
    );
    let rest = "anonuid=65534,anongid=65534,sec=sys,insecure,commit=disk)";
    let all = "(ro,all_squash,anonuid=150,anongid=100,sec=sys:none,secure,commit=async)";
    let expected = format!(
        "/ 127.0.0.1(rw,no_root_squash,{rest}\n/ 10.0.0.0/8(rw,root_squash,{rest}\n\
         / 0.0.0.0/0{all}\n/ ::/0{all}\n"
    );
    assert_eq!(configured.shown(), expected);
    let json = configured.gateway.ask(&["exports", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json[1]["client"], "10.0.0.0/8");
    assert_eq!(json[2]["squash"], "all_squash");
    configured.gateway.stop_cleanly();
}

#[test]
fn an_unprivileged_port_mounts_nothing_unless_the_export_is_insecure() {
    let secure = "[[export]]\npath = \"/\"\nsource_port = \"secure\"\n";
    let configured = Configured::start(secure);
    assert_eq!(configured.gateway.client().mount_at("/"), Err(ACCES));
    // The message to the operator has the remedy.
    configured.gateway.says("source_port = \"insecure\"");
    configured.change(
        "[[export]]\npath = \"/\"\nsource_port = \"insecure\"\n",
        IN_FORCE,
    );
    configured.gateway.client().put("file", b"text");
    configured.gateway.stop_cleanly();
}
