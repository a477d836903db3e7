//! A terminal at which somebody types.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::process::{PATIENCE, Running, program};

/// What a program said that was started at a terminal.
pub(crate) struct Said {
    pub(crate) is_success: bool,
    /// On standard output and standard error.
    pub(crate) text: String,
    /// What the terminal showed of what was typed.
    pub(crate) shown: String,
}

/// Runs the program with a terminal as its standard input; each line is typed when the program asks for it.
pub(crate) fn run_at_terminal(arguments: &[impl AsRef<OsStr>], lines: &[&str]) -> Said {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_bytes();
    let options = File::options().read(true).write(true).clone();
    let inner = options.open(OsString::from_vec(name)).unwrap();
    let mut terminal = File::from(terminal);

    let mut command = program(arguments, &[]);
    command.stdin(Stdio::from(inner));
    let mut child = Running(command.spawn().unwrap());
    // It keeps the other end of the terminal open, so that its end would not be noticed.
    drop(command);
    let shown = bytes(terminal.try_clone().unwrap());
    let errors = bytes(child.0.stderr.take().unwrap());
    let output = bytes(child.0.stdout.take().unwrap());
    let mut text = Vec::new();
    for line in lines {
        // A prompt ends like this, and no message does.
        while !text.ends_with(b": ") {
            let next = errors.recv_timeout(PATIENCE);
            text.push(next.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&text))));
        }
        terminal.write_all(format!("{line}\n").as_bytes()).unwrap();
        text.push(b'\n');
    }
    let status = child.wait(PATIENCE).expect("it does not end");
    text.extend(errors.iter());
    text.extend(output.iter());
    Said {
        is_success: status.success(),
        text: String::from_utf8_lossy(&text).into_owned(),
        shown: String::from_utf8_lossy(&shown.iter().collect::<Vec<_>>()).into_owned(),
    }
}

/// The bytes of an output, as they come, until nobody has its other end any more.
fn bytes(mut output: impl Read + Send + 'static) -> Receiver<u8> {
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
