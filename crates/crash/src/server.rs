//! Runs the program as a child process.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

/// Why the program cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The action that failed.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The program ended by itself.
    #[error("the program ended by itself with {status}; its messages are in {messages}")]
    Ended {
        /// Its exit status.
        status: ExitStatus,
        /// File with its messages.
        messages: PathBuf,
    },
    /// The program runs but is not ready.
    #[error("the program is not ready after {seconds} s; its messages are in {messages}")]
    NotReady {
        /// Time waited, in seconds.
        seconds: u64,
        /// File with its messages.
        messages: PathBuf,
    },
    /// One of the program's commands failed.
    #[error("`forebay {command}` failed: {said}")]
    Command {
        /// The command.
        command: String,
        /// Its messages.
        said: String,
    },
}

fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> ServerError {
    let what = what.into();
    move |source| ServerError::System { what, source }
}

/// How the program is started.
#[derive(Clone, Debug)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// URL of the bucket.
    pub store: String,
    /// The local folder.
    pub data_dir: PathBuf,
    /// Address that it listens on, the same at each start.
    pub address: SocketAddr,
    /// Further flags.
    pub flags: Vec<String>,
    /// The key file that opens its volume, if that is sealed, and its log with it.
    pub key_file: Option<PathBuf>,
    /// File that its messages are appended to.
    pub messages: PathBuf,
}

/// Path of the program to test: `given`, or else the one in `FB_BINARY`, or else the one beside this program.
///
/// # Errors
/// If there is none beside this program; the message contains the remedy.
pub fn find_program(given: Option<PathBuf>) -> Result<PathBuf, String> {
    let given = given.or_else(|| std::env::var_os("FB_BINARY").map(PathBuf::from));
    if let Some(path) = given {
        return Ok(path);
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let beside = own.with_file_name("forebay");
    match beside.exists() {
        true => Ok(beside),
        false => Err(format!(
            "no program at {}: build it (cargo build), or name one with --program or FB_BINARY",
            beside.display()
        )),
    }
}

/// An address of the loopback network on which nothing listens.
///
/// # Errors
/// If there is no free port.
pub fn free_address() -> Result<SocketAddr, ServerError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(system("find a free port"))
}

impl Program {
    fn command(&self, arguments: &[OsString]) -> Command {
        let mut command = Command::new(&self.path);
        // The caller's own configuration must not change a test.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FOREBAY_") {
                command.env_remove(&name);
            }
        }
        command.args(arguments).stdin(Stdio::null());
        if let Some(path) = &self.key_file {
            command.args([
                "--encryption",
                "aes-256-gcm",
                "--seal-log",
                "on",
                "--key-file",
            ]);
            command.arg(path);
        }
        command
    }

    /// Starts `forebay serve` without waiting until it is ready.
    ///
    /// # Errors
    /// If there is no such program, or its messages cannot be written.
    pub fn start(&self) -> Result<Server, ServerError> {
        let messages = File::options()
            .create(true)
            .append(true)
            .open(&self.messages)
            .map_err(system(format!("open {}", self.messages.display())))?;
        let mut arguments: Vec<OsString> =
            ["serve", "--create", "--store", &self.store, "--listen"]
                .map(OsString::from)
                .to_vec();
        arguments.push(self.address.to_string().into());
        arguments.push("--data-dir".into());
        arguments.push(self.data_dir.clone().into());
        // The writers are not root everywhere.
        arguments.extend(["--source-port", "insecure"].map(OsString::from));
        // Several run at once.
        arguments.extend(["--admin-listen", "none"].map(OsString::from));
        arguments.extend(self.flags.iter().map(OsString::from));
        let mut command = self.command(&arguments);
        command.stdout(Stdio::piped()).stderr(messages);
        // SAFETY: between fork and exec only async-signal-safe functions may be called: this is one prctl, which
        // allocates no memory. It keeps the program from outliving a harness that is killed.
        unsafe {
            command.pre_exec(|| {
                set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into)
            });
        }
        let started = Instant::now();
        let mut child = command
            .spawn()
            .map_err(system(format!("start {}", self.path.display())))?;
        let (sender, ready) = channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || {
                // Read to the end even when no receiver is left, or the program would get a broken pipe.
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if line.contains("port=") {
                        let _ = sender.send(());
                    }
                }
            });
        }
        Ok(Server {
            child,
            ready,
            started,
            messages: self.messages.clone(),
        })
    }

    /// Runs `forebay COMMAND --data-dir ...` to its end and returns its output.
    ///
    /// # Errors
    /// If it fails.
    pub fn ask(&self, command: &[&str]) -> Result<String, ServerError> {
        let mut arguments: Vec<OsString> = command.iter().map(OsString::from).collect();
        arguments.push("--data-dir".into());
        arguments.push(self.data_dir.clone().into());
        let output = self
            .command(&arguments)
            .output()
            .map_err(system(format!("run {}", self.path.display())))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(ServerError::Command {
                command: command.join(" "),
                said: format!("{}\n{said}", errors.trim()).trim().to_owned(),
            });
        }
        Ok(said)
    }

    /// Starts `forebay COMMAND --data-dir ...` without waiting for its answer.
    ///
    /// # Errors
    /// If there is no such program.
    pub fn begin(&self, command: &[&str]) -> Result<Begun, ServerError> {
        let mut arguments: Vec<OsString> = command.iter().map(OsString::from).collect();
        arguments.push("--data-dir".into());
        arguments.push(self.data_dir.clone().into());
        let mut command = self.command(&arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command
            .spawn()
            .map_err(system(format!("run {}", self.path.display())))?;
        Ok(Begun(child))
    }

    /// The number under this name in the output of `forebay status --json`.
    ///
    /// # Errors
    /// If there is no such number.
    pub fn status_number(&self, name: &str) -> Result<u64, ServerError> {
        let said = self.ask(&["status", "--json"])?;
        let status: Option<serde_json::Value> = serde_json::from_str(&said).ok();
        let number = status.and_then(|status| status.get(name)?.as_u64());
        number.ok_or_else(|| ServerError::Command {
            command: "status --json".to_owned(),
            said: format!("no number {name} in {said}"),
        })
    }

    /// Whether the local folder is in use: it must have content before it is deleted.
    pub fn has_folder(&self) -> bool {
        Path::new(&self.data_dir).join("state").exists()
    }
}

/// A running command; killed when dropped.
#[derive(Debug)]
pub struct Begun(Child);

impl Drop for Begun {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running gateway.
#[derive(Debug)]
pub struct Server {
    child: Child,
    ready: Receiver<()>,
    started: Instant,
    messages: PathBuf,
}

impl Server {
    /// Waits for at most `limit` until the gateway serves. Returns false if it does not yet.
    ///
    /// # Errors
    /// If the gateway has ended.
    pub fn is_ready_within(&mut self, limit: Duration) -> Result<bool, ServerError> {
        match self.ready.recv_timeout(limit) {
            Ok(()) => Ok(true),
            Err(RecvTimeoutError::Timeout) => Ok(false),
            // It has closed its output.
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait().map_err(system("wait for the program"))?;
                let messages = self.messages.clone();
                Err(ServerError::Ended { status, messages })
            }
        }
    }

    /// Waits until the gateway serves; returns the time since its start.
    ///
    /// # Errors
    /// If it has ended, or is not ready within 60 s.
    pub fn wait_ready(&mut self) -> Result<Duration, ServerError> {
        let limit = Duration::from_secs(60);
        match self.is_ready_within(limit)? {
            true => Ok(self.started.elapsed()),
            false => Err(ServerError::NotReady {
                seconds: limit.as_secs(),
                messages: self.messages.clone(),
            }),
        }
    }

    /// Its process id.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Checks that the gateway has not ended by itself.
    ///
    /// # Errors
    /// If it has ended.
    pub fn still_runs(&mut self) -> Result<(), ServerError> {
        match self
            .child
            .try_wait()
            .map_err(system("look after the program"))?
        {
            Some(status) => Err(ServerError::Ended {
                status,
                messages: self.messages.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Sends SIGKILL, and waits for the end of the process.
    ///
    /// # Errors
    /// If the process had ended by itself before, or cannot be killed.
    pub fn kill(mut self) -> Result<(), ServerError> {
        self.still_runs()?;
        self.child.kill().map_err(system("kill the program"))?;
        self.child.wait().map_err(system("wait for the program"))?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
