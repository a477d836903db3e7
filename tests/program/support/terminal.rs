//! Runs the program at a terminal, and types.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::process::{Running, TIMEOUT, program};

/// The output of a program at a terminal.
pub(crate) struct Said {
    pub(crate) is_success: bool,
    /// Its standard output and standard error.
    pub(crate) text: String,
    /// The typed characters that the terminal echoed.
    pub(crate) shown: String,
}

/// A terminal: the end of the user, and that of a program.
pub(crate) fn open() -> (File, File) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_bytes();
    let options = File::options().read(true).write(true).clone();
    let inner = options.open(OsString::from_vec(name)).unwrap();
    (File::from(terminal), inner)
}

/// Runs the program with a terminal as its standard input; each line is typed when the program asks for it.
pub(crate) fn run_at_terminal(arguments: &[impl AsRef<OsStr>], lines: &[&str]) -> Said {
    let (mut terminal, inner) = open();
    let mut command = program(arguments, &[]);
    command.stdin(Stdio::from(inner));
    let mut child = Running(command.spawn().unwrap());
    // It keeps its end of the terminal open, so that the end of output would not be noticed.
    drop(command);
    let shown = bytes(terminal.try_clone().unwrap());
    let errors = bytes(child.0.stderr.take().unwrap());
    let output = bytes(child.0.stdout.take().unwrap());
    let mut text = Vec::new();
    for line in lines {
        // A prompt ends with this, and no message does.
        while !text.ends_with(b": ") {
            let next = errors.recv_timeout(TIMEOUT);
            text.push(next.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&text))));
        }
        terminal.write_all(format!("{line}\n").as_bytes()).unwrap();
        text.push(b'\n');
    }
    let status = child.wait(TIMEOUT).expect("it does not end");
    text.extend(errors.iter());
    text.extend(output.iter());
    Said {
        is_success: status.success(),
        text: String::from_utf8_lossy(&text).into_owned(),
        shown: String::from_utf8_lossy(&shown.iter().collect::<Vec<_>>()).into_owned(),
    }
}

/// The bytes of an output, as they arrive, until its other end is closed.
pub(crate) fn bytes(mut output: impl Read + Send + 'static) -> Receiver<u8> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut byte = [0];
        // The end of a terminal is an error.
        while output.read_exact(&mut byte).is_ok() {
            if sender.send(byte[0]).is_err() {
                return;
            }
        }
    });
    receiver
}
