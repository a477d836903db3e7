//! Messages on standard error: their kinds, forms and levels, and the latest of them over the control socket.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;

use serde_json::Value;

use crate::support::{Gateway, Place, Running, TIMEOUT, program, run};

/// The line of a message that is text: level, module and text.
fn parts(line: &str) -> (&str, &str, &str) {
    let (_time, rest) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
    let (level, rest) = rest.trim_start().split_once(' ').unwrap();
    let (module, text) = rest.split_once(": ").unwrap_or_else(|| panic!("{line}"));
    (level, module, text)
}

/// Everything that a gateway prints at `info` in a life without trouble.
const EXPECTED: &[(&str, &str, &str)] = &[
    (
        "INFO",
        "forebay::serve::configured",
        "starting store=file:///",
    ),
    ("INFO", "forebay::gateway", "volume "),
    (
        "INFO",
        "forebay::serve",
        "SIGTERM: stopping, publishing for at most ",
    ),
    (
        "INFO",
        "forebay::serve",
        "stopped; the bucket has everything",
    ),
];

#[track_caller]
fn assert_expected(messages: &str) {
    for line in messages.lines() {
        let (level, module, text) = parts(line);
        let is_expected = EXPECTED
            .iter()
            .any(|kind| (level, module) == (kind.0, kind.1) && text.starts_with(kind.2));
        assert!(is_expected, "{line}");
    }
}

#[test]
fn a_life_without_trouble_prints_only_messages_for_its_operator() {
    let place = Place::new();
    for (index, more) in [&["--disk-cache-limit=256MiB"][..], &["--dedup=full"]]
        .iter()
        .enumerate()
    {
        // A busy machine makes calls slow, which is no trouble of this gateway.
        let flags = [more, &["--slow-call=none"][..]].concat();
        let gateway = place.serve_with("data", &flags);
        let name = format!("file {index}");
        gateway.client().put(&name, &vec![7; 3 << 20]);
        gateway.flush();
        let mut client = gateway.client();
        let root = client.mount();
        client.get(&name).unwrap();
        client.mkdir(&format!("folder {index}"));
        client.create(&root, b"gone");
        client.remove(&root, b"gone");
        gateway.status();
        let (code, messages) = gateway.stop();
        assert_eq!(code, Some(0), "{messages}");
        assert_expected(&messages);
        // The line about the configuration comes first, and once.
        let first = messages.lines().next().unwrap();
        assert!(first.contains(" starting store=file://"), "{first}");
        assert_eq!(
            messages.matches(" starting store=").count(),
            1,
            "{messages}"
        );
    }
    // Nor do commands that read the volume.
    for command in [
        &["fsck", "--read-data"][..],
        &["gc"],
        &["log", "list"],
        &["keys", "list"],
    ] {
        let flags = place.flags("data");
        let flags = flags.iter().map(String::as_str);
        let outcome = run(&command.iter().copied().chain(flags).collect::<Vec<_>>());
        let messages = outcome.stderr.lines().filter(|line| line.contains("Z "));
        assert_eq!(messages.collect::<Vec<_>>(), [""; 0], "{command:?}");
    }
}

#[test]
fn the_line_about_the_configuration_has_what_matters() {
    let place = Place::new();
    let gateway = place.serve_with("data", &["--commit=async", "--memory-limit=512MiB"]);
    let (_, messages) = gateway.stop();
    let first = messages.lines().next().unwrap();
    for part in [
        &format!("store=file://{} ", place.bucket().display())[..],
        &format!("data_dir={} ", place.data_dir().display()),
        "listen=127.0.0.1:0 admin_listen=none exports=1 commit=async log_limit=4GiB memory_limit=512MiB metadata_cache=64MiB ",
        "disk_cache_limit=0B compression=auto encryption=off seal_log=off log_level=info version=",
    ] {
        assert!(first.contains(part), "{part} is not in {first}");
    }
}

#[test]
fn with_json_every_line_is_an_object_to_the_last() {
    let place = Place::new();
    let gateway = place.serve_with("data", &["--log-format=json"]);
    gateway.hang_up();
    gateway.says("SIGHUP: the exports of the configuration are in force");
    let (code, messages) = gateway.stop();
    assert_eq!(code, Some(0), "{messages}");
    let object = |line: &str| -> Value {
        let object: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let mut names: Vec<_> = object.as_object().unwrap().keys().cloned().collect();
        names.sort();
        assert_eq!(
            names,
            ["fields", "level", "message", "module", "time"],
            "{line}"
        );
        object
    };
    let objects: Vec<_> = messages.lines().map(object).collect();
    assert_eq!(objects[0]["message"], "starting");
    assert_eq!(objects[0]["fields"]["exports"], 1);
    assert_eq!(objects[0]["fields"]["commit"], "disk");
    assert_eq!(
        objects.last().unwrap()["message"],
        "stopped; the bucket has everything"
    );
    // Why a start fails is one as well.
    let mut arguments = vec!["serve".to_owned(), "--log-format=json".to_owned()];
    arguments.extend(place.flags("data"));
    arguments.push("--store=file:///nonexistent/bucket".to_owned());
    arguments.retain(|flag| !flag.starts_with("--store=file:///") || flag.contains("nonexistent"));
    let refused = run(&arguments);
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    let last = object(refused.stderr.lines().last().unwrap());
    assert_eq!(last["level"], "error");
    assert!(
        last["message"]
            .as_str()
            .unwrap()
            .contains("/nonexistent/bucket"),
        "{last}"
    );
}

/// What `forebay serve`, which fails, prints into a file that is its standard error. `named` is the inode that the
/// variable of systemd names, for that of the file.
fn printed_to_file(named: impl Fn(u64) -> u64) -> String {
    let place = Place::new();
    let path = place.path("stderr");
    let file = File::create(&path).unwrap();
    let stat = file.metadata().unwrap();
    let stream = format!("{}:{}", stat.dev(), named(stat.ino()));
    let mut arguments = vec!["serve".to_owned(), "--create".to_owned()];
    arguments.extend(place.flags("data"));
    arguments.retain(|flag| !flag.starts_with("--listen"));
    // An address for documentation (RFC 5737), which this machine does not have.
    arguments.extend(["--listen=192.0.2.1:0", "--clients=192.0.2.0/24"].map(str::to_owned));
    let mut command = program(&arguments, &[("JOURNAL_STREAM", &stream)]);
    let mut process = Running(command.stderr(file).spawn().unwrap());
    assert_eq!(process.wait(TIMEOUT).unwrap().code(), Some(1));
    fs::read_to_string(path).unwrap()
}

#[test]
fn in_the_journal_each_line_begins_with_its_priority() {
    let printed = printed_to_file(|inode| inode);
    let lines: Vec<_> = printed.lines().collect();
    let first = "<6> INFO forebay::serve::configured: starting store=file:///";
    assert!(lines[0].starts_with(first), "{printed}");
    let last = "<3>forebay: cannot listen on 192.0.2.1:0";
    assert!(lines.last().unwrap().starts_with(last), "{printed}");
    assert!(lines.iter().all(|line| line.starts_with('<')), "{printed}");
    // A service may send its output elsewhere.
    let printed = printed_to_file(|inode| inode + 1);
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(parts(lines[0]).1, "forebay::serve::configured");
    assert!(
        lines
            .last()
            .unwrap()
            .starts_with("forebay: cannot listen on"),
        "{printed}"
    );
}

#[test]
fn sighup_changes_the_level_of_one_module() {
    const ENDED: &str = "connection ended";
    let place = Place::new();
    let file = place.path("forebay.toml");
    fs::write(&file, "log_level = \"info\"\n").unwrap();
    let gateway = place.serve_with("data", &[&format!("--config={}", file.display())]);
    let change = |levels: &str, says: &str| {
        fs::write(&file, format!("log_level = \"{levels}\"\n")).unwrap();
        gateway.hang_up();
        gateway.says(says);
    };
    let ended = || gateway.messages().matches(ENDED).count();
    gateway.client().put("before", b"text");
    change("info,nfs=debug", "log_level = info,nfs=debug (");
    gateway.client().put("while", b"text");
    gateway.says(ENDED);
    // A wrong level changes nothing.
    change("info,nfsd=debug", "no module `nfsd`; did you mean `nfs`?");
    gateway.says("nothing was changed");
    let before = ended();
    gateway.client().put("after", b"text");
    while ended() == before {
        std::thread::yield_now();
    }
    // Below what says that it is in force; `forebay events` has it.
    let mut events = 0;
    change("warn", "");
    while events == 0 {
        let said = gateway.ask(&["events"]).stdout;
        events = said.matches("SIGHUP: log_level = warn (").count();
    }
    gateway.client().put("at last", b"text");
    let before = gateway.messages();
    let (code, messages) = gateway.stop();
    assert_eq!(code, Some(0), "{messages}");
    assert_eq!(messages, before);
    for line in messages.lines() {
        let (level, module, _) = parts(line);
        assert!(
            level != "DEBUG" || module.starts_with("forebay_nfs::"),
            "{line}"
        );
    }
}

#[test]
fn a_level_from_the_command_line_outlives_sighup() {
    let place = Place::new();
    let file = place.path("forebay.toml");
    fs::write(&file, "").unwrap();
    let config = format!("--config={}", file.display());
    let gateway = place.serve_with("data", &[&config, "--log-level=info"]);
    fs::write(&file, "log_level = \"error\"\n").unwrap();
    gateway.hang_up();
    gateway.says("SIGHUP: the exports of the configuration are in force");
    let (_, messages) = gateway.stop();
    assert!(!messages.contains("SIGHUP: log_level"), "{messages}");
    assert!(
        messages.contains("stopped; the bucket has everything"),
        "{messages}"
    );
}

fn numbers(lines: &[Value]) -> Vec<u64> {
    lines
        .iter()
        .map(|line| line["number"].as_u64().unwrap())
        .collect()
}

fn events(gateway: &Gateway, more: &[&str]) -> Vec<Value> {
    let outcome = gateway.ask(&[&["events", "--json"], more].concat());
    assert!(outcome.status.success(), "{}", outcome.stderr);
    let lines = outcome.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn events_are_the_latest_messages_whatever_is_printed() {
    let place = Place::new();
    let gateway = place.serve_with("data", &["--log-level=error"]);
    let kept = events(&gateway, &[]);
    assert_eq!(numbers(&kept), (1..=kept.len() as u64).collect::<Vec<_>>());
    assert_eq!(kept[0]["message"], "starting");
    assert_eq!(kept[0]["level"], "info");
    assert_eq!(kept[0]["module"], "forebay::serve::configured");
    assert_eq!(kept[0]["fields"]["commit"], "disk");
    assert_eq!(
        numbers(&events(&gateway, &["--after=1"])),
        numbers(&kept)[1..]
    );
    let text = gateway.ask(&["events"]);
    let first = text.stdout.lines().next().unwrap().to_owned();
    assert_eq!(parts(&first).0, "INFO");
    assert!(parts(&first).2.starts_with("starting "), "{first}");
    assert_eq!(gateway.messages(), "");
    gateway.stop_cleanly();
}

#[test]
fn who_follows_events_gets_each_as_it_comes_until_the_gateway_ends() {
    let place = Place::new();
    let gateway = place.serve();
    let data_dir = format!("--data-dir={}", place.data_dir().display());
    let mut follower = Running(
        program(&["events", "--follow", "--json", &data_dir], &[])
            .spawn()
            .unwrap(),
    );
    let lines = BufReader::new(follower.0.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let first = lines.next().unwrap();
    assert_eq!(
        (&first["number"], &first["message"]),
        (&1.into(), &"starting".into())
    );
    let mut next = 2;
    let mut until = |part: &str| {
        for event in lines.by_ref() {
            assert_eq!(event["number"], next);
            next += 1;
            if event["message"].as_str().unwrap().contains(part) {
                return;
            }
        }
        panic!("it ended before {part}");
    };
    gateway.hang_up();
    until("SIGHUP: the exports of the configuration are in force");
    gateway.hang_up();
    until("SIGHUP: the exports of the configuration are in force");
    gateway.stop_cleanly();
    assert_eq!(follower.wait(TIMEOUT).unwrap().code(), Some(1));
}
