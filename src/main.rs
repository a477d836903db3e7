//! `forebay`: parses the command line, runs the command, and turns its outcome into an exit code.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::SystemTime;

use forebay::admin::{
    self, Followed, QuotaRequest, QuotaTable, ScrubRequest, SnapshotRequest, SnapshotTable, Traced,
};
use forebay::bench::{self, Interrupt, Plan};
use forebay::cli::{
    self, CloneRequest, ConfigForm, EventsCommand, Request, RestoreRequest, ScrubCommand, TopForm,
    TraceCommand,
};
use forebay::config::{self, Config, ConfigErrors, Inputs};
use forebay::credentials::{self, Credentials, Typed};
use forebay::gateway::{self, NfsGateway};
use forebay::health::{Health, Problem, State};
use forebay::logging::Event;
use forebay::{
    clones, fit, fsck, gc, kept_logs, keys, local_users, logging, past, salvage, serve, top,
};
use forebay_fs::Expected;

mod allocator;

/// Why the program ends with an exit code other than 0.
enum Failure {
    /// The command failed: 1.
    Failed(String),
    /// The configuration is wrong: 2, as for a wrong command line.
    Configuration(ConfigErrors),
    /// The check has findings, the repair had work to do, or the gateway is not healthy. Details are printed already.
    Findings(u8),
    /// The environment, or the configuration of the bucket, is wrong: 2.
    Environment(String),
    /// The volume could not be checked: 2.
    Unchecked(String),
    /// Another gateway holds the volume: 3.
    TakenOver(String),
}

fn main() -> ExitCode {
    allocator::give_back_soon();
    let (request, inputs) = match cli::parse(std::env::args_os(), Inputs::of_process()) {
        Ok(parsed) => parsed,
        // Requested help arrives here too: clap knows the stream and the exit code of each error.
        Err(error) => error.exit(),
    };
    let done = run(request, &inputs);
    logging::say_what_was_held(true);
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Failed(problem)) => {
            logging::say_failure(&problem);
            ExitCode::from(1)
        }
        Err(Failure::TakenOver(problem)) => {
            logging::say_failure(&problem);
            ExitCode::from(serve::TAKEN_OVER)
        }
        Err(Failure::Findings(code)) => ExitCode::from(code),
        Err(Failure::Unchecked(problem) | Failure::Environment(problem)) => {
            logging::say_failure(&problem);
            ExitCode::from(2)
        }
        Err(Failure::Configuration(errors)) => {
            for error in errors.0 {
                logging::say_failure(&error.to_string());
            }
            ExitCode::from(2)
        }
    }
}

fn run(request: Request, inputs: &Inputs) -> Result<(), Failure> {
    let load = || Config::load(inputs).map_err(Failure::Configuration);
    // These commands create no files of a gateway, and read no secrets.
    if !matches!(request, Request::Bench { .. } | Request::Version) {
        local_users::close_process().map_err(Failure::Failed)?;
    }
    let needs_clock = match request {
        Request::Bench { .. } | Request::Version | Request::Config(_) => false,
        // These requests to a gateway do not depend on the clock of this process.
        Request::Flush { .. }
        | Request::Where { .. }
        | Request::Status { .. }
        | Request::Exports { .. }
        | Request::Events(_)
        | Request::Top(_) => false,
        _ => true,
    };
    if needs_clock {
        fit::check_clock(SystemTime::now()).map_err(Failure::Failed)?;
    }
    let load_with_store = || {
        let config = load()?;
        forebay::store::check(&config).map_err(Failure::Environment)?;
        Ok(config)
    };
    match request {
        Request::Version => print(&format!("forebay {}\n", env!("CARGO_PKG_VERSION"))),
        Request::Config(ConfigForm::Markdown) => print(&config::markdown_table()),
        Request::Config(ConfigForm::Toml) => print(&load()?.to_toml()),
        Request::Config(ConfigForm::Json) => print(&format!("{:#}\n", load()?.to_json())),
        Request::Flush { path, timeout } => {
            let data_dir = load()?.data_dir;
            let report = block_on(admin::flush(&data_dir, path, timeout))?;
            print(&format!("{report}\n"))
        }
        Request::Where { path, json } => {
            let data_dir = load()?.data_dir;
            let report =
                with_progress(|progress| block_on(admin::whereabouts(&data_dir, path, progress)))?;
            if json {
                let text = serde_json::to_string_pretty(&report).map_err(failed)?;
                print(&format!("{text}\n"))
            } else {
                print(&report.to_string())
            }
        }
        Request::Status { json } => {
            let data_dir = load()?.data_dir;
            let status = block_on(admin::status(&data_dir))?;
            if json {
                let text = serde_json::to_string_pretty(&status).map_err(failed)?;
                print(&format!("{text}\n"))
            } else {
                print(&status.to_string())
            }
        }
        Request::Check => {
            let data_dir = load()?.data_dir;
            let health = match block_on(admin::status(&data_dir)) {
                Ok(status) => status.health,
                Err(Failure::Failed(problem)) => {
                    Health::with(vec![Problem::new(State::Failing, "no_answer", problem)])
                }
                Err(other) => return Err(other),
            };
            print(&format!("{health}\n"))?;
            match health.state {
                State::Healthy => Ok(()),
                state => Err(Failure::Findings(state.code())),
            }
        }
        Request::Quota { request, json } => {
            let data_dir = load()?.data_dir;
            let removes = matches!(request, QuotaRequest::Remove { .. });
            let quotas = block_on(admin::quota(&data_dir, request))?;
            if json {
                let text = serde_json::to_string_pretty(&quotas).map_err(failed)?;
                print(&format!("{text}\n"))
            } else if removes {
                print(
                    "the quota is removed; the gateway updates the counts of the objects below it in the background\n",
                )
            } else {
                print(&QuotaTable(&quotas).to_string())
            }
        }
        Request::Snapshot { request, json } => {
            let data_dir = load()?.data_dir;
            let deletes = matches!(request, SnapshotRequest::Delete { .. });
            let is_in_bucket = matches!(
                request,
                SnapshotRequest::List | SnapshotRequest::Show { .. }
            );
            let snapshots = block_on(async {
                let asked = admin::snapshot(&data_dir, request).await;
                Ok::<_, admin::ClientError>(asked.map_err(|error| match &error {
                    admin::ClientError::NotRunning { .. } if is_in_bucket => failed(format!(
                        "{error}; with --bucket this reads the bucket, and needs no gateway"
                    )),
                    _ => failed(error),
                }))
            })??;
            if json {
                let text = serde_json::to_string_pretty(&snapshots).map_err(failed)?;
                print(&format!("{text}\n"))
            } else if deletes {
                print(
                    "the snapshot is deleted; the gateway gives its space back in the background\n",
                )
            } else {
                print(&SnapshotTable(&snapshots).to_string())
            }
        }
        Request::Restore(RestoreRequest::Path { order, json }) => {
            let data_dir = load()?.data_dir;
            let report =
                with_progress(|progress| block_on(admin::restore(&data_dir, order, progress)))?;
            if json {
                let text = serde_json::to_string_pretty(&report).map_err(failed)?;
                print(&format!("{text}\n"))
            } else {
                print(&report.to_string())
            }
        }
        Request::Undelete { request, json } => {
            let data_dir = load()?.data_dir;
            let show = |text: &str| match print(text) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            };
            block_on(forebay::undelete::undelete(&data_dir, request, json, show))
        }
        Request::Scrub(ScrubCommand { request, json }) => {
            let data_dir = load()?.data_dir;
            let said = match request {
                ScrubRequest::Start { .. } => {
                    "the scrub begins; `forebay scrub --status` shows its progress\n"
                }
                ScrubRequest::Stop => "the scrub ends\n",
                ScrubRequest::Status => "",
            };
            let report = block_on(admin::scrub(&data_dir, request))?;
            if json {
                let text = serde_json::to_string_pretty(&report).map_err(failed)?;
                print(&format!("{text}\n"))
            } else if said.is_empty() {
                print(&report.to_string())
            } else {
                print(said)
            }
        }
        Request::Exports { json } => {
            let data_dir = load()?.data_dir;
            let exports = block_on(admin::exports(&data_dir))?;
            if json {
                let text = serde_json::to_string_pretty(&exports).map_err(failed)?;
                print(&format!("{text}\n"))
            } else {
                let lines: String = exports.iter().map(|line| format!("{line}\n")).collect();
                print(&lines)
            }
        }
        Request::Events(EventsCommand {
            after,
            follow,
            json,
        }) => {
            let data_dir = load()?.data_dir;
            let line = |event: &Event| match json {
                true => serde_json::to_string(event).map_err(failed),
                false => Ok(event.to_string()),
            };
            if !follow {
                let events = block_on(admin::events(&data_dir, after))?;
                let lines: Result<Vec<_>, _> = events.iter().map(line).collect();
                return print(
                    &lines?
                        .iter()
                        .map(|line| format!("{line}\n"))
                        .collect::<String>(),
                );
            }
            let each = |followed| match followed {
                Followed::Event(event) => print_line(line(&event).ok()),
                Followed::Lost(count) => {
                    eprintln!("forebay: {count} events are left out here: they came too fast");
                    ControlFlow::Continue(())
                }
            };
            block_on(admin::follow_events(&data_dir, after, each))
        }
        Request::Trace(TraceCommand { request, json }) => {
            let data_dir = load()?.data_dir;
            let each = |traced| match traced {
                Traced::Begun => {
                    eprintln!("forebay: tracing calls, until Ctrl-C");
                    ControlFlow::Continue(())
                }
                Traced::Call(call) => print_line(match json {
                    true => serde_json::to_string(&call).ok(),
                    false => Some(call.to_string()),
                }),
                Traced::Lost(count) => {
                    eprintln!("forebay: {count} calls are left out here: they came too fast");
                    ControlFlow::Continue(())
                }
            };
            block_on(admin::trace(&data_dir, request, each))
        }
        Request::Top(TopForm::OnceJson) => {
            let json = block_on(top::once_json(&load()?.data_dir))?;
            print(&format!("{json:#}\n"))
        }
        Request::Top(TopForm::Once) => print(&block_on(top::once_text(&load()?.data_dir))?),
        Request::Top(TopForm::Live) => {
            let data_dir = load()?.data_dir;
            run_to_end(async move { top::run(&data_dir).await })
        }
        Request::Log(request) => {
            let config = load_with_store()?;
            logging::start(&config).map_err(failed)?;
            let mut output = io::stdout().lock();
            let expected = match kept_logs::needs_keys(&config, &request) {
                true => credentials(&config, Typed::Once)?.expected,
                false => Expected::NotSealed,
            };
            match run_to_end(kept_logs::run(&config, &expected, &request, &mut output)) {
                // If the reader closes the pipe, that is not a failure.
                Ok(Err(error)) if error.kind() != io::ErrorKind::BrokenPipe => Err(failed(error)),
                Ok(_) => Ok(()),
                Err(failure) => Err(failure),
            }
        }
        Request::Past(request) => {
            let config = load_with_store()?;
            logging::start(&config).map_err(failed)?;
            let expected = credentials(&config, Typed::Once)?.expected;
            let mut output = io::stdout().lock();
            match run_to_end(past::run(&config, &expected, &request, &mut output))? {
                // If the reader closes the pipe, that is not a failure.
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(failed(error)),
                _ => Ok(()),
            }
        }
        Request::Clone(request) => {
            let config = load_with_store()?;
            logging::start(&config).map_err(failed)?;
            let expected = match request {
                CloneRequest::Make { .. } | CloneRequest::Detach { .. } => {
                    credentials(&config, Typed::Once)?.expected
                }
                CloneRequest::List { .. } | CloneRequest::Forget { .. } => Expected::NotSealed,
            };
            print(&run_to_end(clones::run(&config, expected, request))?)
        }
        Request::Restore(RestoreRequest::Volume(request)) => {
            let config = load_with_store()?;
            logging::start(&config).map_err(failed)?;
            let expected = credentials(&config, Typed::Once)?.expected;
            print(&run_to_end(clones::restored(&config, expected, request))?)
        }
        Request::Fsck(request) => {
            let config = load_with_store()?;
            logging::start(&config).map_err(Failure::Unchecked)?;
            let expected = expected_to_look(&config)?;
            looked_at(fsck::run(&config, expected, request))
        }
        Request::Gc(request) => {
            let config = load_with_store()?;
            logging::start(&config).map_err(Failure::Unchecked)?;
            let expected = expected_to_look(&config)?;
            looked_at(gc::run(&config, expected, request))
        }
        Request::Keys(request) => {
            let config = load_with_store()?;
            logging::start(&config).map_err(failed)?;
            let prepared = keys::prepare(&config, request).map_err(Failure::Failed)?;
            print(&run_to_end(keys::run(&config, prepared))?)
        }
        Request::Salvage(request) => {
            let config = load_with_store()?;
            logging::start(&config).map_err(failed)?;
            let expected = credentials(&config, Typed::Once)?.expected;
            print(&run_to_end(salvage::run(&config, expected, &request))?)
        }
        Request::Bench { plan, json } => {
            let report = measure(plan)?;
            if json {
                let text = serde_json::to_string_pretty(&report).map_err(failed)?;
                print(&format!("{text}\n"))
            } else {
                print(&report.to_string())
            }
        }
        Request::Format => {
            let config = load_with_store()?;
            logging::start(&config).map_err(failed)?;
            let expected = credentials(&config, Typed::Twice)?.expected;
            let made = run_to_end(gateway::format(&config, &expected))?;
            print(&format!("{made}\n"))
        }
        Request::Serve { new } => {
            let config = load_with_store()?;
            logging::start(&config).map_err(failed)?;
            // Before signals are handled: the passphrase may have to be typed.
            let credentials = credentials(&config, Typed::Once)?;
            local_users::close_folders(&config).map_err(failed)?;
            fit::check(&config).map_err(Failure::Configuration)?;
            allocator::huge_pages_for_buffers(config.memory_limit.bytes());
            let open =
                |config, opening| Box::pin(NfsGateway::open(config, credentials, new, opening));
            let again = || Config::load(inputs);
            let served = run_to_end(Box::pin(async {
                Ok(Box::pin(serve::serve(&config, again, open)).await)
            }))?;
            served.map_err(|failure| match failure {
                serve::Failure::Failed(problem) => Failure::Failed(problem),
                serve::Failure::TakenOver(problem) => Failure::TakenOver(problem),
            })
        }
    }
}

/// The credentials of the volume in the configuration.
fn credentials(config: &Config, typed: Typed) -> Result<Credentials, Failure> {
    credentials::of(config, typed).map_err(Failure::Failed)
}

/// The expected volume, for a command that only reads it.
fn expected_to_look(config: &Config) -> Result<Expected, Failure> {
    let credentials = credentials::of(config, Typed::Once).map_err(Failure::Unchecked)?;
    Ok(credentials.expected)
}

/// Runs a command that examines a volume, and prints its result. The command has exit codes of its own.
fn looked_at(look: impl Future<Output = Result<fsck::Outcome, String>>) -> Result<(), Failure> {
    let unchecked = |failure| match failure {
        Failure::Failed(problem) => Failure::Unchecked(problem),
        other => other,
    };
    let outcome = run_to_end(look).map_err(unchecked)?;
    print(&outcome.text).map_err(unchecked)?;
    match outcome.code {
        0 => Ok(()),
        code => Err(Failure::Findings(code)),
    }
}

/// Measures a folder, until the run is complete or SIGINT arrives.
fn measure(plan: Plan) -> Result<bench::Report, Failure> {
    let interrupt = Interrupt::default();
    let on_signal = interrupt.clone();
    run_to_end(async move {
        tokio::spawn(async move {
            // The run then ends by itself, and removes its files.
            if tokio::signal::ctrl_c().await.is_ok() {
                on_signal.set();
            }
        });
        let progress = |what: &str| eprintln!("forebay: {what}");
        let work = tokio::task::spawn_blocking(move || bench::run(&plan, &interrupt, progress));
        match work.await {
            Ok(done) => done.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    })
}

/// Maximum number of threads for blocking work: encoding of packs, and files of a bucket in a folder. Each thread
/// keeps some memory of the allocator, and more threads than disks and processors can serve speed nothing up; without
/// a limit, a reader of a bucket in a folder has 150 of them. No work in these threads waits for other work in them;
/// few at a time wait for other processes (the lock of a folder, the names of clients).
const BLOCKING_THREADS: usize = 32;

/// Runs a gateway, or another command that needs the bucket, to its end.
fn run_to_end<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
        .map_err(failed)?;
    runtime.spawn(allocator::give_back_while_idle());
    let done = runtime.block_on(work);
    // Tasks of the metadata store that are cut off may wait for each other for ever; the end of the process, which
    // follows, ends them.
    runtime.shutdown_background();
    done.map_err(Failure::Failed)
}

/// Shows on a terminal how many objects an exchange with a gateway has gone through, until it ends.
fn with_progress<T>(exchange: impl FnOnce(&dyn Fn(u64)) -> T) -> T {
    let is_seen = io::stderr().is_terminal();
    let done = exchange(&|objects| {
        if is_seen {
            eprint!("\r{objects} objects so far");
        }
    });
    if is_seen {
        // Clears the line.
        eprint!("\r\x1b[K");
    }
    done
}

/// Runs one exchange with a gateway.
fn block_on<T>(
    exchange: impl Future<Output = Result<T, admin::ClientError>>,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    runtime.block_on(exchange).map_err(failed)
}

/// Prints a line at once, and continues while there is a line and a reader.
fn print_line(line: Option<String>) -> ControlFlow<()> {
    let Some(line) = line else {
        return ControlFlow::Break(());
    };
    let mut output = io::stdout().lock();
    let written = writeln!(output, "{line}").and_then(|()| output.flush());
    // There is no reader any more.
    written.map_or(ControlFlow::Break(()), |()| ControlFlow::Continue(()))
}

/// Writes to standard output. If the reader closes the pipe (`| head`), that is not a failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    match output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(failed(error)),
        _ => Ok(()),
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}
