//! Messages from their place in the code to lines and events.

use std::io;
use std::net::{IpAddr, SocketAddr};

use serde_json::Value as Json;
use tracing::level_filters::LevelFilter;

use super::*;
use crate::config::Value;

/// Memory to which messages go.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl io::Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Everything that messages go to.
struct Scene {
    memory: Memory,
    limit: Arc<Limit>,
    events: Events,
}

impl Scene {
    /// Runs `work`, which may change the levels.
    fn with(levels: &str, form: Form, work: impl FnOnce(&Levels)) -> Scene {
        let scene = Scene {
            memory: Memory::default(),
            limit: Arc::new(Limit::new(|| Duration::ZERO)),
            events: Events::default(),
        };
        let (subscriber, levels) = scene.subscriber(levels, form);
        tracing::subscriber::with_default(subscriber, || {
            work(&levels);
            scene.limit.say_what_was_held(true);
        });
        scene
    }

    fn subscriber(
        &self,
        levels: &str,
        form: Form,
    ) -> (impl Subscriber + Send + Sync + use<>, Levels) {
        let output = self.memory.clone();
        let (limit, events) = (self.limit.clone(), self.events.clone());
        subscriber(&read(levels), form, limit, events, move || output.clone())
    }

    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.memory.0.lock().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn messages(&self) -> Vec<String> {
        let events = self.events.since(0).into_iter();
        events.map(|event| event.message).collect()
    }
}

fn read(levels: &str) -> LogLevels {
    LogLevels::read(levels).unwrap()
}

fn text() -> Form {
    Form::new(LogFormat::Text, false)
}

/// The lines that `work` prints, the reports of suppressed messages last.
fn printed(work: impl FnOnce()) -> Vec<String> {
    Scene::with("info", text(), |_| work()).lines()
}

#[test]
fn a_client_is_held_by_its_address_whatever_its_port_and_the_rest_is_said() {
    let lines = printed(|| {
        for port in 0..5000_u16 {
            let peer = SocketAddr::from(([10, 0, 0, 1], port));
            tracing::warn!(client = %peer, port, "says something");
        }
        tracing::warn!(client = %IpAddr::from([10, 0, 0, 2]), "says something else");
    });
    // The first messages of the first client, the one of the other client, and the number of held ones.
    assert_eq!(lines.len(), limit::OF_CLIENT as usize + 2);
    let other = lines.iter().filter(|line| line.contains("10.0.0.2"));
    assert_eq!(other.count(), 1);
    let last = lines.last().unwrap();
    assert!(
        last.contains("more like this within a minute: says something"),
        "{last}"
    );
    assert!(last.contains("client=\"10.0.0.1\""), "{last}");
}

#[test]
fn what_names_no_client_is_held_by_its_kind() {
    let lines = printed(|| {
        for number in 0..5000 {
            tracing::error!("inode {number} cannot be read");
        }
        tracing::error!("the log has failed");
    });
    assert_eq!(lines.len(), limit::OF_KIND as usize + 2);
    assert!(
        lines
            .iter()
            .any(|line| line.ends_with("the log has failed"))
    );
    assert!(
        lines
            .last()
            .unwrap()
            .contains("more like this within a minute: inode ")
    );
}

#[test]
fn a_message_with_a_name_of_several_lines_is_one_line() {
    let name = "x\n2026-01-01T00:00:00Z ERROR forebay: forged";
    let lines = printed(|| tracing::warn!(client = %"10.0.0.1", name = %name, "{name}"));
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn a_line_of_json_is_an_object_whatever_a_client_has_chosen() {
    let name = "x\"}\n{\u{1b}[2J\u{202e}\u{2028}\u{9b}\0\\";
    let form = Form::new(LogFormat::Json, false);
    let scene = Scene::with("info", form, |_| {
        tracing::warn!(client = %"10.0.0.1", name, count = 3, r#type = ?Some(1), "says {name}");
    });
    let [line] = &scene.lines()[..] else {
        panic!("{:?}", scene.lines());
    };
    let object: Json = serde_json::from_str(line).unwrap();
    assert!(object["time"].as_str().unwrap().ends_with('Z'), "{line}");
    assert_eq!(object["level"], "warn");
    assert_eq!(object["module"], "forebay::logging::tests");
    assert_eq!(object["message"], format!("says {name}"));
    let fields =
        serde_json::json!({"client": "10.0.0.1", "name": name, "count": 3, "type": "Some(1)"});
    assert_eq!(object["fields"], fields);
    assert_eq!(object.as_object().unwrap().len(), 5);
}

#[test]
fn json_has_the_limits_of_text() {
    let form = Form::new(LogFormat::Json, false);
    let scene = Scene::with("info", form, |_| {
        for port in 0..5000_u16 {
            let peer = SocketAddr::from(([10, 0, 0, 1], port));
            tracing::warn!(client = %peer, "{}", "x".repeat(9000));
        }
    });
    let lines = scene.lines();
    assert_eq!(lines.len(), limit::OF_CLIENT as usize + 1);
    for line in &lines {
        assert!(line.len() <= line::LINE_BYTES);
        assert!(
            serde_json::from_str::<Json>(line).unwrap().is_object(),
            "{line}"
        );
    }
}

#[test]
fn a_line_for_the_journal_begins_with_its_priority_and_has_no_time() {
    for (format, rest) in [
        (
            LogFormat::Text,
            [
                "<3>ERROR forebay::logging::tests: one\\ntwo client=10.0.0.1",
                "<4> WARN forebay::logging::tests: text",
                "<6> INFO forebay::logging::tests: text",
                "<7>DEBUG forebay::logging::tests: text",
                "<7>TRACE forebay::logging::tests: text",
            ],
        ),
        (
            LogFormat::Json,
            [
                "<3>{\"level\":\"error\",\"module\":\"forebay::logging::tests\",\"message\":\"one\\ntwo\",\"fields\":{\"client\":\"10.0.0.1\"}}",
                "<4>{\"level\":\"warn\",\"module\":\"forebay::logging::tests\",\"message\":\"text\",\"fields\":{}}",
                "<6>{\"level\":\"info\",\"module\":\"forebay::logging::tests\",\"message\":\"text\",\"fields\":{}}",
                "<7>{\"level\":\"debug\",\"module\":\"forebay::logging::tests\",\"message\":\"text\",\"fields\":{}}",
                "<7>{\"level\":\"trace\",\"module\":\"forebay::logging::tests\",\"message\":\"text\",\"fields\":{}}",
            ],
        ),
    ] {
        let scene = Scene::with("trace", Form::new(format, true), |_| {
            tracing::error!(client = %"10.0.0.1", "one\ntwo");
            tracing::warn!("text");
            tracing::info!("text");
            tracing::debug!("text");
            tracing::trace!("text");
        });
        assert_eq!(scene.lines(), rest);
    }
}

#[test]
fn levels_change_while_messages_are_logged() {
    fn say() {
        tracing::debug!(target: "forebay_nfs::server", "of nfs");
        tracing::debug!(target: "forebay_fs::open", "of fs");
        tracing::info!(target: "forebay_fs::open", "info of fs");
    }
    let scene = Scene::with("info", text(), |levels| {
        say();
        assert!(!levels.set(&read("info")));
        assert!(levels.set(&read("error,nfs=debug")));
        say();
        assert!(levels.set(&read("debug")));
        say();
        assert!(levels.set(&read("error")));
        say();
    });
    let lines = scene.lines();
    let said: Vec<_> = lines
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(_, text)| text)
        .collect();
    assert_eq!(
        said,
        ["info of fs", "of nfs", "of nfs", "of fs", "info of fs"]
    );
    // These are kept whatever is printed.
    assert_eq!(scene.messages(), ["info of fs"; 4]);
}

/// Below this hint a message costs one comparison.
#[test]
fn the_hint_of_the_highest_level_follows_the_levels() {
    let scene = Scene::with("info", text(), |_| ());
    let (subscriber, levels) = scene.subscriber("info", text());
    assert_eq!(subscriber.max_level_hint(), Some(LevelFilter::INFO));
    for (text, hint) in [
        ("error,nfs=debug", LevelFilter::DEBUG),
        ("warn,slatedb=trace", LevelFilter::TRACE),
        // Events are kept.
        ("error", LevelFilter::INFO),
        ("debug", LevelFilter::DEBUG),
        ("info", LevelFilter::INFO),
    ] {
        assert!(levels.set(&read(text)));
        assert_eq!(subscriber.max_level_hint(), Some(hint), "{text}");
    }
}

#[test]
fn events_are_what_the_limits_let_through_and_are_escaped() {
    let name = "a\nb\u{1b}";
    let scene = Scene::with("error", text(), |_| {
        tracing::warn!(client = %"10.0.0.1:700", name, count = 7, "says {name}");
        tracing::info!(target: "slatedb::db", "a library's");
        tracing::warn!(target: "slatedb::db", "a library's warning");
        tracing::debug!("for developers");
        for _ in 0..5000 {
            tracing::info!("again");
        }
    });
    let events = scene.events.since(0);
    let first = &events[0];
    assert_eq!((first.number, first.level), (1, Severity::Warn));
    assert_eq!(first.module, "forebay::logging::tests");
    assert_eq!(first.message, "says a\\nb\\u{1b}");
    let fields = [
        ("client", "10.0.0.1:700"),
        ("count", "7"),
        ("name", "a\\nb\\u{1b}"),
    ];
    assert_eq!(
        first.fields,
        fields
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    );
    assert_eq!(events[1].message, "a library's warning");
    let last = events.last().unwrap();
    // No more severe than the messages that it counts: nothing is printed here.
    assert_eq!(
        (last.number, last.level),
        (3 + u64::from(limit::OF_KIND), Severity::Info)
    );
    assert!(
        last.message
            .ends_with("more like this within a minute: again"),
        "{last}"
    );
    assert_eq!(scene.lines(), [""; 0]);
}

#[test]
fn an_event_of_any_size_takes_bounded_memory() {
    let scene = Scene::with("info", text(), |_| {
        let long = "\n".repeat(1 << 20);
        tracing::warn!(client = %"10.0.0.1", one = long, two = long, "{long}");
    });
    let events = scene.events.since(0);
    let fields: usize = events[0].fields.values().map(String::len).sum();
    let bytes = events[0].message.len() + fields;
    assert!(bytes < line::LINE_BYTES + 200, "{bytes}");
    assert_eq!(events[0].fields["client"], "10.0.0.1");
}
