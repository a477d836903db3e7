//! `forebay trace` and the log of slow calls: what a call waited for, the requests that it caused, and that neither slows
//! calls.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::process::{ChildStderr, ChildStdout};
use std::thread;

use forebay_client::Stable;
use serde_json::Value;

use crate::support::preload::HeldPacks;
use crate::support::{Gateway, Place, Running, program};
use crate::waits::Away;

/// A `forebay trace --json` that has begun.
struct Trace {
    _program: Running,
    lines: BufReader<ChildStdout>,
    messages: BufReader<ChildStderr>,
}

impl Trace {
    fn begin(place: &Place, flags: &[&str]) -> Trace {
        let data_dir = format!("--data-dir={}", place.data_dir().display());
        let arguments = [&["trace", "--json", &data_dir], flags].concat();
        let mut program = Running(program(&arguments, &[]).spawn().unwrap());
        let lines = BufReader::new(program.0.stdout.take().unwrap());
        let messages = BufReader::new(program.0.stderr.take().unwrap());
        let mut trace = Trace {
            _program: program,
            lines,
            messages,
        };
        let said = trace.message();
        assert!(said.contains("tracing calls"), "{said}");
        trace
    }

    fn message(&mut self) -> String {
        let mut line = String::new();
        self.messages.read_line(&mut line).unwrap();
        line
    }

    /// The next call.
    #[track_caller]
    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// The next call that has waited for this.
    #[track_caller]
    fn waiting_for(&mut self, what: &str) -> Value {
        loop {
            let call = self.next();
            if waits(&call).contains(&what.to_owned()) {
                return call;
            }
        }
    }
}

fn waits(call: &Value) -> Vec<String> {
    let waits = call["waits"].as_array().unwrap().iter();
    waits
        .map(|wait| wait["for"].as_str().unwrap().to_owned())
        .collect()
}

/// The lines of the log about slow calls.
fn slow_lines(gateway: &Gateway) -> Vec<String> {
    let messages = gateway.messages();
    let slow = messages.lines().filter(|line| line.contains("slow call: "));
    slow.map(str::to_owned).collect()
}

#[test]
fn a_read_from_the_bucket_shows_its_wait_and_its_request() {
    let place = Place::new();
    let gateway = place.serve();
    gateway.client().put("file", &[7; 100_000]);
    gateway.flush();
    gateway.stop_cleanly();
    let gateway = place.serve();
    let mut trace = Trace::begin(&place, &["--procedure=read"]);
    let mut client = gateway.client();
    let root = client.mount();
    let file = client.lookup(&root, b"file").unwrap();
    assert!(client.read(&file, 4096, 8192).unwrap() == [7; 8192]);
    // From memory.
    assert!(client.read(&file, 4096, 8192).unwrap() == [7; 8192]);

    let read = trace.next();
    assert_eq!(read["procedure"], "READ");
    assert_eq!(read["client"], "127.0.0.1");
    assert_eq!(read["path"], "/file");
    assert_eq!(
        (&read["offset"], &read["size"]),
        (&4096.into(), &8192.into())
    );
    assert_eq!(read["result"], "ok");
    // A bucket that answers at once is not waited for.
    assert!(waits(&read).iter().all(|one| one == "bucket"), "{read}");
    let requests = read["requests"].as_array().unwrap();
    let get = requests.iter().find(|own| own["method"] == "get");
    let get = get.unwrap_or_else(|| panic!("{read}"));
    assert!(get["requests"].as_u64() > Some(0), "{read}");
    let again = trace.next();
    assert_eq!(again["fileid"], read["fileid"]);
    assert_eq!(
        (&again["waits"], &again["requests"]),
        (&Value::Array(vec![]), &Value::Array(vec![]))
    );
    gateway.stop_cleanly();
}

#[test]
fn a_read_that_waits_for_the_bucket_shows_that_wait() {
    let place = Place::new();
    let gateway = place.serve();
    gateway.client().put("file", &[7; 100_000]);
    gateway.flush();
    gateway.stop_cleanly();
    // Nothing is in memory any more.
    let held = HeldPacks::reads(&place);
    let gateway = Gateway::start(&place.flags("data"), &[("LD_PRELOAD", &held.library)]);
    let mut trace = Trace::begin(&place, &["--procedure=READ"]);
    thread::scope(|scope| {
        let reader = scope.spawn(|| gateway.client().get("file").unwrap());
        held.wait();
        held.release();
        assert!(reader.join().unwrap() == [7; 100_000]);
    });
    let read = trace.next();
    assert_eq!(read["path"], "/file");
    assert_eq!(waits(&read), ["bucket"]);
    let get = &read["requests"][0];
    assert_eq!(get["method"], "get", "{read}");
    let seconds = |value: &Value| value["seconds"].as_f64().unwrap();
    assert!(seconds(&read["waits"][0]) > 0.0, "{read}");
    assert!(seconds(&read["waits"][0]) <= seconds(&read), "{read}");
    gateway.stop_cleanly();
}

#[test]
fn a_write_without_room_in_the_log_shows_it_and_is_logged_as_slow() {
    let place = Place::new();
    let flags = [
        "--log-limit=32MiB",
        "--log-segment=4MiB",
        "--checkpoint-bytes=8MiB",
        "--memory-limit=256MiB",
        "--slow-call=100ms",
    ];
    let gateway = place.serve_with("data", &flags);
    gateway.client().put("before", b"data");
    gateway.flush();
    let mut trace = Trace::begin(&place, &["--procedure=WRITE"]);
    let away = Away::take(&place);
    let data = vec![7; 96 << 20];
    thread::scope(|scope| {
        let writer = scope.spawn(|| gateway.client().put("file", &data));
        let write = trace.waiting_for("log");
        assert_eq!(write["size"], 1 << 20, "{write}");
        gateway.says("slow call: WRITE took ");
        gateway.says(" for log");
        away.bring_back();
        writer.join().unwrap();
    });
    gateway.stop_cleanly();
}

#[test]
fn a_trace_shows_only_what_it_was_asked_for() {
    let place = Place::new();
    let gateway = place.serve();
    let mut client = gateway.client();
    client.mkdir("dir");
    let root = client.mount();
    let dir = client.lookup(&root, b"dir").unwrap();
    let mut below = Trace::begin(&place, &["--path=/dir/"]);
    let mut stranger = Trace::begin(&place, &["--client=192.0.2.1"]);
    let mut creates = Trace::begin(&place, &["--procedure=CREATE", "--client=127.0.0.1"]);
    client.create(&root, b"elsewhere");
    let file = client.create(&dir, b"a\n\x1b[2Jb");
    client.write(&file, 0, b"data", Stable::FileSync).unwrap();

    let create = below.next();
    assert_eq!(create["procedure"], "CREATE");
    assert_eq!(create["path"], "/dir/a\\n\\u{1b}[2Jb");
    let write = below.next();
    assert_eq!(write["procedure"], "WRITE");
    assert_eq!(write["path"], "/dir/a\\n\\u{1b}[2Jb");
    assert_eq!(creates.next()["path"], "/elsewhere");
    assert_eq!(creates.next()["path"], create["path"]);
    gateway.stop_cleanly();
    let mut rest = String::new();
    stranger.lines.read_line(&mut rest).unwrap();
    assert_eq!(rest, "", "it has seen a call of another client");
    assert!(stranger.message().contains("has stopped"));
}

#[test]
fn a_trace_that_nobody_reads_holds_up_no_call() {
    let place = Place::new();
    let gateway = place.serve();
    let mut client = gateway.client();
    client.put("file", b"data");
    let unread = Trace::begin(&place, &[]);
    let root = client.mount();
    // More than its pipe, its socket and its ring take.
    for _ in 0..5000 {
        client.lookup(&root, b"file").unwrap();
    }
    // Others see calls all the same.
    let mut other = Trace::begin(&place, &["--procedure=LOOKUP"]);
    client.lookup(&root, b"file").unwrap();
    assert_eq!(other.next()["path"], "/file");
    drop(unread);
    gateway.stop_cleanly();
}

#[test]
fn a_trace_of_slow_calls_shows_no_others() {
    let place = Place::new();
    let gateway = place.serve();
    gateway.client().put("file", &[7; 100_000]);
    gateway.flush();
    gateway.stop_cleanly();
    // A READ that takes as long as the test wants.
    let held = HeldPacks::reads(&place);
    let gateway = Gateway::start(&place.flags("data"), &[("LD_PRELOAD", &held.library)]);
    let mut slow = Trace::begin(&place, &["--slower-than=1ms", "--procedure=READ"]);
    let mut very_slow = Trace::begin(&place, &["--slower-than=1h"]);
    thread::scope(|scope| {
        let reader = scope.spawn(|| gateway.client().get("file").unwrap());
        held.wait();
        held.release();
        reader.join().unwrap();
    });
    let read = slow.next();
    assert_eq!(read["procedure"], "READ");
    assert!(read["seconds"].as_f64().unwrap() >= 0.001, "{read}");
    gateway.stop_cleanly();
    let mut rest = String::new();
    very_slow.lines.read_line(&mut rest).unwrap();
    assert_eq!(rest, "", "it has seen a call that took less than an hour");
}

#[test]
fn a_trace_says_how_many_calls_it_has_left_out() {
    let place = Place::new();
    let gateway = place.serve();
    let mut client = gateway.client();
    client.put("file", b"data");
    let root = client.mount();
    let mut attempts = 0..10;
    let said = loop {
        let Trace {
            _program: traces,
            mut lines,
            mut messages,
        } = Trace::begin(&place, &[]);
        // More than its pipe, its socket and its ring take.
        for _ in 0..8000 {
            client.lookup(&root, b"file").unwrap();
        }
        let reading = thread::spawn(move || io::copy(&mut lines, &mut io::sink()));
        let mut said = String::new();
        messages.read_line(&mut said).unwrap();
        drop(traces);
        reading.join().unwrap().unwrap();
        if said.contains("left out") {
            break said;
        }
        // On a slow machine it took nothing for too long, and was disconnected.
        attempts.next().unwrap_or_else(|| panic!("{said}"));
    };
    let count = said.split(' ').find_map(|word| word.parse::<u64>().ok());
    assert!(count > Some(0), "{said}");
    assert!(
        said.contains("calls are left out here: they came too fast"),
        "{said}"
    );
    gateway.stop_cleanly();
}

#[test]
fn the_limit_of_slow_calls_is_changed_by_sighup_and_their_lines_are_few() {
    let place = Place::new();
    let file = place.path("forebay.toml");
    fs::write(&file, "slow_call = \"none\"\n").unwrap();
    let gateway = place.serve_with("data", &[&format!("--config={}", file.display())]);
    let mut client = gateway.client();
    client.put("file", b"data");
    let root = client.mount();
    fs::write(&file, "slow_call = \"1ns\"\n").unwrap();
    gateway.hang_up();
    gateway.says("SIGHUP: the exports of the configuration are in force");
    assert_eq!(slow_lines(&gateway), [""; 0]);
    // The change comes to another task.
    while slow_lines(&gateway).is_empty() {
        client.lookup(&root, b"file").unwrap();
    }
    for _ in 0..200 {
        client.lookup(&root, b"file").unwrap();
    }
    let lines = slow_lines(&gateway);
    assert!(lines[0].contains("LOOKUP took"), "{}", lines[0]);
    assert!(lines[0].contains("client=\"127.0.0.1\""), "{}", lines[0]);
    assert!(lines.len() < 100, "{} lines", lines.len());
    let events = gateway.ask(&["events"]).stdout;
    assert!(events.contains("slow call: LOOKUP took"), "{events}");
    gateway.stop_cleanly();
}
