//! `forebay top`: scripts get values, and a terminal gets back what it had.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::Receiver;

use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

use crate::support::terminal::{bytes, open};
use crate::support::{Place, Running, TIMEOUT, program, refused, run};

/// What a terminal gets when its other screen is left.
const LEFT: &str = "\x1b[?1049l\x1b[?25h";

fn data_dir(place: &Place) -> String {
    format!("--data-dir={}", place.data_dir().display())
}

#[test]
fn one_picture_is_printed_as_text_and_its_values_as_json() {
    let place = Place::new();
    let gateway = place.serve();
    gateway.client().put("file", &[7; 1000]);
    let data_dir = data_dir(&place);
    let text = run(&["top", "--once", &data_dir]);
    assert!(text.status.success(), "{}", text.stderr);
    for part in [
        "healthy", "file://", "reads", "writes", "names", "bucket", "clients",
    ] {
        assert!(text.stdout.contains(part), "{part}: {}", text.stdout);
    }
    let is_order = |c: char| c != '\n' && c.is_control();
    assert!(!text.stdout.contains(is_order), "{:?}", text.stdout);
    let json = run(&["top", "--once", "--json", &data_dir]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["interval_seconds"], 2.0);
    for table in ["series", "clients", "procedures", "requests", "files"] {
        assert!(json[table].is_array(), "{json}");
    }
    let status = gateway.status();
    assert_eq!(
        json.get("cost"),
        status.get("cost").filter(|cost| !cost.is_null())
    );
    refused(&["top", &data_dir]).says(&["needs a terminal", "--once"]);
    let json_alone = run(&["top", "--json", &data_dir]);
    assert_eq!(json_alone.status.code(), Some(2));
    assert!(
        json_alone.stderr.contains("--once"),
        "{}",
        json_alone.stderr
    );
    gateway.stop_cleanly();
    refused(&["top", "--once", &data_dir]).says(&["no gateway runs"]);
}

/// `forebay top` at a terminal.
struct Top {
    running: Running,
    /// The end of the user.
    terminal: File,
    /// That of the program.
    inner: File,
    output: Receiver<u8>,
    seen: Vec<u8>,
}

impl Top {
    fn start(data_dir: &Path, columns: u16, lines: u16) -> Top {
        let (terminal, inner) = open();
        resize(&terminal, columns, lines);
        let data_dir = format!("--data-dir={}", data_dir.display());
        let mut command = program(&["top", &data_dir], &[]);
        command
            .stdin(Stdio::from(inner.try_clone().unwrap()))
            .stdout(Stdio::from(inner.try_clone().unwrap()));
        Top {
            running: Running(command.spawn().unwrap()),
            output: bytes(terminal.try_clone().unwrap()),
            terminal,
            inner,
            seen: Vec::new(),
        }
    }

    /// Waits until the terminal has got this, behind what it has shown before. A picture is sent as its differences, so
    /// this is one word.
    fn shows(&mut self, word: &str) {
        while !self.seen.ends_with(word.as_bytes()) {
            match self.output.recv_timeout(TIMEOUT) {
                Ok(byte) => self.seen.push(byte),
                Err(_) => panic!(
                    "{word:?} is not in {:?}",
                    String::from_utf8_lossy(&self.seen)
                ),
            }
        }
        self.seen.clear();
    }

    fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.running.0), signal).unwrap();
    }

    fn reads_lines(&self) -> bool {
        let modes = tcgetattr(&self.inner).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    fn ends_well(mut self) {
        self.shows(LEFT);
        let ended = self.running.wait(TIMEOUT).expect("it does not end");
        assert!(ended.success(), "{ended}");
        assert!(self.reads_lines());
    }
}

fn resize(terminal: &File, columns: u16, lines: u16) {
    let size = Winsize {
        ws_row: lines,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).unwrap();
}

#[test]
fn a_terminal_is_used_and_left_as_it_was() {
    let place = Place::new();
    let gateway = place.serve();
    let mut top = Top::start(&place.data_dir(), 40, 12);
    top.shows("\x1b[?1049h");
    top.shows("healthy");
    assert!(!top.reads_lines());
    resize(&top.terminal, 80, 24);
    top.signal(Signal::WINCH);
    top.shows("throughput");
    top.press("?");
    top.shows("closes");
    top.press("x");
    // A gateway that is gone is said, and one that comes back is shown.
    gateway.stop_cleanly();
    top.shows("gateway");
    let gateway = place.serve();
    top.shows("healthy");
    top.press("q");
    top.ends_well();
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let mut top = Top::start(&place.data_dir(), 80, 24);
        top.shows("healthy");
        top.signal(signal);
        top.ends_well();
    }
    let mut top = Top::start(&place.data_dir(), 80, 24);
    top.shows("healthy");
    // Ctrl-C.
    top.press("\x03");
    top.ends_well();
    gateway.stop_cleanly();
}
