//! Runs the program as a child process.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::nfs::Client;

/// Longer than anything takes in these tests, even in a debug build on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// The folders of a test: the bucket and the local folders.
pub(crate) struct Place {
    root: TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place {
            root: TempDir::new().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The folder of the bucket.
    pub(crate) fn bucket(&self) -> PathBuf {
        self.path("bucket")
    }

    /// The first local folder.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.path("data")
    }

    /// Flags for a volume in the bucket with its local folder in the folder `data_dir`.
    pub(crate) fn flags(&self, data_dir: &str) -> Vec<String> {
        let store = format!("--store=file://{}", self.bucket().display());
        let data_dir = format!("--data-dir={}", self.path(data_dir).display());
        vec![store, data_dir, "--listen=127.0.0.1:0".to_owned()]
    }

    /// A gateway on the bucket with the first local folder.
    pub(crate) fn serve(&self) -> Gateway {
        self.serve_with("data", &[])
    }

    pub(crate) fn serve_with(&self, data_dir: &str, more: &[&str]) -> Gateway {
        let mut flags = self.flags(data_dir);
        flags.extend(more.iter().map(|&flag| flag.to_owned()));
        Gateway::start(&flags, &[])
    }
}

/// The program, without settings from the tests' environment.
pub(crate) fn program(arguments: &[impl AsRef<OsStr>], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("FOREBAY_") || text.starts_with("AWS_") {
            command.env_remove(&name);
        }
    }
    command
        .env("AWS_CONFIG_FILE", "/dev/null")
        .env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        // The client of the tests is not root everywhere.
        .env("FOREBAY_SOURCE_PORT", "insecure")
        // Tests run at once, and there is one default port.
        .env("FOREBAY_ADMIN_LISTEN", "none")
        .envs(variables.iter().copied())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Outcome of a program that has ended.
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    fn code(&self) -> Option<i32> {
        self.status.code()
    }
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[impl AsRef<OsStr>]) -> Outcome {
    run_with(arguments, &[])
}

pub(crate) fn run_with(arguments: &[impl AsRef<OsStr>], variables: &[(&str, &str)]) -> Outcome {
    finish(program(arguments, variables))
}

fn finish(mut command: Command) -> Outcome {
    let mut child = Running(command.spawn().unwrap());
    let stdout = collect(child.0.stdout.take().unwrap());
    let stderr = collect(child.0.stderr.take().unwrap());
    let status = child.wait(TIMEOUT);
    let text = |output: Receiver<String>| output.recv_timeout(TIMEOUT).unwrap();
    Outcome {
        status: status.unwrap_or_else(|| panic!("still running after {TIMEOUT:?}: {command:?}")),
        stdout: text(stdout),
        stderr: text(stderr),
    }
}

fn collect(mut output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = output.read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// A process that does not outlive the test.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Waits for the end of the process; returns `None` if it does not end in time.
    pub(crate) fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return Some(status);
            }
            if Instant::now() > deadline {
                return None;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A refusal of the program.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: i32,
    /// Its one error, without the name of the program.
    pub(crate) error: String,
}

impl Refusal {
    /// Asserts that the error contains all of these.
    #[track_caller]
    pub(crate) fn says(&self, parts: &[&str]) {
        for part in parts {
            assert!(
                self.error.contains(part),
                "{part:?} is not in {:?}",
                self.error
            );
        }
    }
}

/// Runs the program, which must refuse with exactly one line of error.
#[track_caller]
pub(crate) fn refused(arguments: &[impl AsRef<OsStr>]) -> Refusal {
    refused_with(arguments, &[])
}

#[track_caller]
pub(crate) fn refused_with(arguments: &[impl AsRef<OsStr>], variables: &[(&str, &str)]) -> Refusal {
    refusal(&finish(program(arguments, variables)))
}

#[track_caller]
fn refusal(outcome: &Outcome) -> Refusal {
    let Outcome { stdout, stderr, .. } = outcome;
    assert!(!outcome.status.success(), "not refused: {stdout}{stderr}");
    assert_eq!(stdout, "", "a refusal is no output; stderr: {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    let errors: Vec<_> = stderr
        .lines()
        .filter_map(|line| line.strip_prefix("forebay: "))
        .collect();
    let [error] = errors[..] else {
        panic!("not one line of error: {stderr}");
    };
    Refusal {
        code: outcome.code().unwrap(),
        error: error.to_owned(),
    }
}

/// `forebay serve`, not started yet.
fn serve(flags: &[String], variables: &[(&str, &str)]) -> Command {
    let serve = "serve".to_owned();
    program(&[&[serve], flags].concat(), variables)
}

/// A running gateway.
pub(crate) struct Gateway {
    process: Running,
    /// The first line that it printed.
    pub(crate) banner: String,
    stderr: Arc<Mutex<String>>,
    port: u16,
    data_dir: String,
}

impl Gateway {
    /// Starts `forebay serve`, which may create the volume, and waits until it serves.
    #[track_caller]
    pub(crate) fn start(flags: &[String], variables: &[(&str, &str)]) -> Gateway {
        let create = "--create".to_owned();
        Gateway::serving(serve(&[&[create], flags].concat(), variables), flags)
    }

    /// The same on an existing volume.
    #[track_caller]
    pub(crate) fn start_as_it_is(flags: &[String]) -> Gateway {
        Gateway::serving(serve(flags, &[]), flags)
    }

    /// As [`start`](Self::start), from a shell whose umask gives all users access to new files.
    #[track_caller]
    pub(crate) fn start_with_umask_0(flags: &[String]) -> Gateway {
        let create = "--create".to_owned();
        let command = serve(&[&[create], flags].concat(), &[]);
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "umask 0 && exec \"$@\"", "sh"])
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        Gateway::serving(shell, flags)
    }

    #[track_caller]
    fn serving(mut command: Command, flags: &[String]) -> Gateway {
        let mut process = Running(command.spawn().unwrap());
        let stderr = Arc::new(Mutex::new(String::new()));
        gather(process.0.stderr.take().unwrap(), stderr.clone());
        let lines = lines(process.0.stdout.take().unwrap());
        let first = lines.recv_timeout(TIMEOUT).unwrap_or_else(|_| {
            panic!("it does not serve: {flags:?}: {}", stderr.lock().unwrap());
        });
        let port = first
            .split_once("port=")
            .and_then(|(_, rest)| rest.split(',').next());
        let data_dir = flags
            .iter()
            .find_map(|flag| flag.strip_prefix("--data-dir="));
        Gateway {
            port: port.unwrap().parse().unwrap(),
            data_dir: data_dir.unwrap().to_owned(),
            banner: first,
            process,
            stderr,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.port)
    }

    /// Its messages on standard error so far.
    pub(crate) fn messages(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// Waits until its messages contain `part`.
    #[track_caller]
    pub(crate) fn says(&self, part: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while !self.messages().contains(part) {
            assert!(
                Instant::now() < deadline,
                "{part:?} is not in {}",
                self.messages()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// `forebay COMMAND` for this gateway.
    pub(crate) fn ask(&self, command: &[&str]) -> Outcome {
        let data_dir = format!("--data-dir={}", self.data_dir);
        let arguments: Vec<_> = command.iter().copied().chain([&*data_dir]).collect();
        run(&arguments)
    }

    /// `forebay flush`, which must succeed.
    #[track_caller]
    pub(crate) fn flush(&self) {
        let flushed = self.ask(&["flush", "--timeout=50s"]);
        assert!(
            flushed.status.success(),
            "{}{}",
            flushed.stderr,
            self.messages()
        );
    }

    /// `forebay status --json`, which must succeed.
    #[track_caller]
    pub(crate) fn status(&self) -> Value {
        let status = self.ask(&["status", "--json"]);
        assert!(status.status.success(), "{}", status.stderr);
        serde_json::from_str(&status.stdout).unwrap()
    }

    /// SIGSTOP: the process stays, and does nothing until [`go_on`](Self::go_on).
    pub(crate) fn pause(&self) {
        kill_process(Pid::from_child(&self.process.0), Signal::STOP).unwrap();
    }

    /// SIGCONT.
    pub(crate) fn go_on(&self) {
        kill_process(Pid::from_child(&self.process.0), Signal::CONT).unwrap();
    }

    /// A file of its folder in `/proc`.
    pub(crate) fn proc(&self, name: &str) -> String {
        let pid = self.process.0.id();
        std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap()
    }

    /// SIGHUP: it reads its configuration again.
    pub(crate) fn hang_up(&self) {
        kill_process(Pid::from_child(&self.process.0), Signal::HUP).unwrap();
    }

    /// SIGKILL, as a crash of the program.
    pub(crate) fn kill(mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
    }

    /// SIGTERM; returns exit code and messages.
    #[track_caller]
    pub(crate) fn stop(self) -> (Option<i32>, String) {
        let pid = Pid::from_child(&self.process.0);
        kill_process(pid, Signal::TERM).unwrap();
        self.ends()
    }

    /// Waits for it to end by itself; returns exit code and messages.
    #[track_caller]
    pub(crate) fn ends(mut self) -> (Option<i32>, String) {
        let status = self.process.wait(TIMEOUT);
        let status = status.unwrap_or_else(|| panic!("it does not end: {}", self.messages()));
        // The thread that collects the messages may be a moment behind.
        while Arc::strong_count(&self.stderr) > 1 {
            thread::sleep(Duration::from_millis(5));
        }
        (status.code(), self.messages())
    }

    /// SIGTERM, after which it must exit with 0.
    #[track_caller]
    pub(crate) fn stop_cleanly(self) {
        let (code, messages) = self.stop();
        assert_eq!(code, Some(0), "{messages}");
    }
}

/// The lines of an output, as they arrive.
fn lines(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        // Read to the end even when no receiver is left, or the program would get a broken pipe.
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    receiver
}

fn gather(output: impl Read + Send + 'static, into: Arc<Mutex<String>>) {
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let mut text = into.lock().unwrap();
            text.push_str(&line);
            text.push('\n');
        }
    });
}

impl AsRef<Path> for Place {
    fn as_ref(&self) -> &Path {
        self.root.path()
    }
}
