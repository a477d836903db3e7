//! The life of a gateway: lock the folder, open, print how to mount, serve, stop cleanly.
//!
//! It is independent of the parts of a gateway, which the caller's function opens, and which is used through
//! [`Gateway`]. The first SIGTERM or SIGINT stops it within `shutdown_limit`; a second one ends the program at once,
//! like SIGKILL: the content of the log is published after the next start. SIGHUP reads the configuration again: see
//! `Changes`.

mod configured;

use std::fmt;
use std::future::Future;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use forebay_fs::Opening;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::admin::{Control, Server};
use crate::config::{Config, ConfigErrors, LogMode, MaybeAddress, Sealing, Shown, Value};
use crate::http::{self, Stopping};
use crate::logging;
use crate::taken_over;
use crate::watch::watch_opening;

/// Why a gateway does not serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It could not start, continue or stop cleanly.
    Failed(String),
    /// Another gateway holds the volume: it did so at the start, or has taken it since.
    TakenOver(String),
}

/// The exit code of [`Failure::TakenOver`]. Supervisors can be configured not to restart after it.
pub const TAKEN_OVER: u8 = 3;

impl From<String> for Failure {
    fn from(problem: String) -> Failure {
        Failure::Failed(problem)
    }
}

/// A gateway that serves clients, from the moment it is opened.
pub trait Gateway: Control {
    /// The address on which it listens, with the actual port if port 0 was requested.
    fn address(&self) -> SocketAddr;

    /// Logs waits of clients and problems while it is polled. Never returns.
    fn watch(&self) -> impl Future<Output = ()> + Send;

    /// Returns the reason when the gateway cannot serve any longer: it was fenced, or its log failed permanently.
    /// Never returns otherwise.
    fn failed(&self) -> impl Future<Output = Failure> + Send;

    /// Applies the exports of this configuration to the next call of every client, and the content of its files for
    /// TLS to every client that connects; has the credentials for the bucket read again. On an error, which is a
    /// message to the operator, nothing changes.
    fn replace_exports(&self, config: &Config) -> Result<(), String>;

    /// Stops: finishes calls, flushes the log, and publishes for at most `limit`. Returns the number of bytes that
    /// are in the log but not in the bucket.
    fn stop(&self, limit: Duration) -> impl Future<Output = Result<u64, String>> + Send;
}

/// Serves until a signal stops the process. `again` reads the configuration again.
///
/// # Errors
/// Why the gateway could not start, continue or stop cleanly, as a message to the user.
pub async fn serve<G, O>(
    config: &Config,
    again: impl Fn() -> Result<Config, ConfigErrors>,
    open: impl FnOnce(Config, Opening) -> O,
) -> Result<(), Failure>
where
    G: Gateway,
    O: Future<Output = Result<G, Failure>>,
{
    let signals = Signals::receive().map_err(|error| format!("cannot receive signals: {error}"))?;
    serve_until(config, again, open, signals, &mut std::io::stdout()).await
}

/// The handled signals, as they arrive.
struct Signals {
    /// The names of signals that request a stop.
    stop: mpsc::Receiver<&'static str>,
    /// SIGHUP; several that arrive before the first is handled count as one.
    reload: mpsc::Receiver<()>,
}

impl Signals {
    fn receive() -> std::io::Result<Signals> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let (stops, stop) = mpsc::channel(2);
        let (reloads, reload) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                let name = tokio::select! {
                    Some(()) = terminate.recv() => "SIGTERM",
                    Some(()) = interrupt.recv() => "SIGINT",
                    else => return,
                };
                if stops.send(name).await.is_err() {
                    return;
                }
            }
        });
        tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                // A full channel is as good: the pending SIGHUP will read the latest configuration.
                let _ = reloads.try_send(());
            }
        });
        Ok(Signals { stop, reload })
    }
}

async fn serve_until<G, O>(
    config: &Config,
    again: impl Fn() -> Result<Config, ConfigErrors>,
    open: impl FnOnce(Config, Opening) -> O,
    mut signals: Signals,
    output: &mut impl Write,
) -> Result<(), Failure>
where
    G: Gateway,
    O: Future<Output = Result<G, Failure>>,
{
    configured::say(config);
    // Before anything in the folder is read: from here on no other gateway uses it.
    let admin = Server::bind(&config.data_dir).map_err(|error| error.to_string())?;
    let admin = admin.with_events(logging::events().clone());
    let http = http::Server::bind(config).await?;
    let opening = Opening::default();
    let (opened, control) = watch::channel(None);
    let stopping = Stopping::default();
    let mut bound = config.clone();
    bound.admin_listen = MaybeAddress(http.as_ref().map(http::Server::address));
    let life = async {
        let gateway = tokio::select! {
            gateway = open(bound, opening.clone()) => Arc::new(gateway?),
            () = watch_opening(&opening) => return Err("the watch of the opening has ended".to_owned().into()),
            Some(name) = signals.stop.recv() => {
                tracing::info!("{name} while opening the volume: nothing was served");
                return Ok(());
            }
        };
        taken_over::forget(&config.data_dir);
        // Before the message: its reader may send requests at once.
        opened.send_replace(Some(gateway.clone()));
        // The parent process may have closed the pipe; the gateway does not depend on it.
        let _ = write!(
            output,
            "{}",
            Banner {
                config,
                address: gateway.address()
            }
        );
        let _ = output.flush();
        tokio::select! {
            () = gateway.watch() => Err("the watch of waiting clients has ended".to_owned().into()),
            result = live(config, again, &*gateway, &mut signals, http.as_ref(), &stopping) => result,
        }
    };
    let answers = async {
        match &http {
            Some(http) => http.run(control.clone(), &opening, &stopping).await,
            None => std::future::pending().await,
        }
    };
    // Control socket and admin HTTP answer until the gateway has stopped.
    tokio::select! {
        () = answers => Err("admin HTTP is closed".to_owned().into()),
        () = admin.run(control.clone(), &opening) => Err("the control socket is closed".to_owned().into()),
        result = life => result,
    }
}

/// From the first call to the end of the stop.
async fn live(
    config: &Config,
    again: impl Fn() -> Result<Config, ConfigErrors>,
    gateway: &impl Gateway,
    signals: &mut Signals,
    http: Option<&http::Server>,
    stopping: &Stopping,
) -> Result<(), Failure> {
    let mut shutdown_limit = config.shutdown_limit;
    let mut failed = pin!(gateway.failed());
    let failure = loop {
        tokio::select! {
            Some(name) = signals.stop.recv() => {
                let limit = humantime::format_duration(shutdown_limit);
                tracing::info!("{name}: stopping, publishing for at most {limit}");
                stopping.begin(name.to_owned());
                break None;
            }
            Some(()) = signals.reload.recv() => {
                if let Some(changed) = reload(config, again(), gateway, http) {
                    shutdown_limit = changed.shutdown_limit;
                }
            }
            reason = &mut failed => break Some(reason),
        }
    };
    if let Some(Failure::Failed(reason) | Failure::TakenOver(reason)) = &failure {
        stopping.begin(reason.clone());
    }
    if let Some(Failure::TakenOver(reason)) = &failure {
        taken_over::note(&config.data_dir, reason);
    }
    let stopped = tokio::select! {
        stopped = gateway.stop(shutdown_limit) => stopped,
        Some(name) = signals.stop.recv() => Err(format!("stopped at once by a second {name}")),
    };
    match stopped {
        Ok(0) => tracing::info!("stopped; the bucket has everything"),
        // A start would archive that log, and publish none of it.
        Ok(bytes) if matches!(failure, Some(Failure::TakenOver(_))) => tracing::warn!(
            "stopped; up to {bytes} bytes of the log in {0} are not in the volume, and a start does not publish \
             them: keep the folder; `forebay log list --data-dir {0}` lists them, and `forebay log salvage current \
             --to FOLDER --data-dir {0} --store {1}` brings them back as files",
            config.data_dir.display(),
            config.store,
        ),
        Ok(bytes) => tracing::warn!(
            "stopped; {bytes} bytes of the log in {} are not in the bucket yet: keep the folder, \
             and start again to publish them",
            config.data_dir.display()
        ),
        // The first failure is the cause.
        Err(problem) => return Err(failure.unwrap_or(problem.into())),
    }
    failure.map_or(Ok(()), Err)
}

/// Handles SIGHUP, and logs the outcome; returns the new configuration if it has changed.
fn reload(
    started: &Config,
    again: Result<Config, ConfigErrors>,
    gateway: &impl Gateway,
    http: Option<&http::Server>,
) -> Option<Config> {
    let config = match again {
        Ok(config) => config,
        Err(errors) => {
            for error in errors.0 {
                tracing::error!("SIGHUP: {error}");
            }
            tracing::error!(
                "SIGHUP: the configuration is wrong, and nothing was changed: correct it and send \
                 SIGHUP again"
            );
            return None;
        }
    };
    // Both are read before one of them is changed.
    let reloaded = match http
        .map(|http| Ok((http, http.reload(&config)?)))
        .transpose()
    {
        Ok(reloaded) => reloaded,
        Err::<_, String>(problem) => {
            tracing::error!("SIGHUP: nothing was changed: {problem}");
            return None;
        }
    };
    if let Err(problem) = gateway.replace_exports(&config) {
        tracing::error!("SIGHUP: the exports stay as they were: {problem}");
        return None;
    }
    if let Some((http, reloaded)) = reloaded {
        http.put_in_force(reloaded);
    }
    if logging::set_levels(&config.log_level) {
        let levels = config.described("log_level");
        tracing::info!("SIGHUP: {levels} is in force");
    }
    for change in Changes::between(started, &config).0 {
        tracing::warn!("SIGHUP: {change}");
    }
    tracing::info!(
        "SIGHUP: the exports of the configuration are in force; `forebay exports` shows them; credentials for the bucket are \
         read again"
    );
    Some(config)
}

/// Changes in a new configuration that cannot take effect before the next start, one sentence each. Exports, and the
/// settings that they are derived from, the files of TLS, the access to admin HTTP,
/// `shutdown_limit`, `log_level`, `slow_call` and `snapshot_schedule` take effect at once.
struct Changes(Vec<String>);

impl Changes {
    fn between(started: &Config, again: &Config) -> Changes {
        let sentence = |(was, is): (Shown, Shown)| {
            (was.value != is.value && !is.setting.takes_effect_at_once()).then(|| {
                format!(
                    "{} = {} ({}) takes effect at the next start; until then it is {}",
                    is.setting.key, is.value, is.source, was.value
                )
            })
        };
        let pairs = started.shown().into_iter().zip(again.shown());
        Changes(pairs.filter_map(sentence).collect())
    }
}

/// The message of a started gateway: how to mount it, and the places of its data.
struct Banner<'a> {
    config: &'a Config,
    address: SocketAddr,
}

impl fmt::Display for Banner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Banner { config, address } = self;
        let protocol = if address.is_ipv4() {
            "tcp"
        } else {
            "proto=tcp6"
        };
        let (port, host) = (address.port(), host(address.ip()));
        let path = config.exports.first().map_or("/", |export| &export.path);
        writeln!(
            f,
            "mount -t nfs -o vers=3,{protocol},port={port},mountport={port},nolock {host}:{path} /mnt/forebay"
        )?;
        writeln!(
            f,
            "  volume   {}, up to {}",
            config.store, config.volume_limit
        )?;
        match config.log {
            LogMode::Disk => writeln!(
                f,
                "  log      {}, up to {}",
                config.data_dir.display(),
                config.log_limit,
            )?,
            LogMode::None => writeln!(f, "  log      none: COMMIT waits for the bucket")?,
        }
        if config.encryption != Sealing::Off {
            let word = config.encryption.word();
            let log = match config.seal_log.is_on() {
                true => "the log as well",
                false => "but for the log, which is in the clear (seal_log = off)",
            };
            let log = match config.log {
                LogMode::Disk => format!(", {log}"),
                LogMode::None => String::new(),
            };
            writeln!(f, "  sealed   with {word}{log}")?;
        }
        writeln!(
            f,
            "  memory   up to {} for block buffers",
            config.memory_limit
        )?;
        let interval = humantime::format_duration(config.checkpoint_interval);
        writeln!(
            f,
            "  publish  every {interval}, or {} of changes",
            config.checkpoint_bytes
        )?;
        for export in &config.exports {
            writeln!(
                f,
                "  export   {} to {}, commit = {}",
                export.path,
                export.clients.write().to_string().replace(',', ", "),
                export.commit.word()
            )?;
        }
        Ok(())
    }
}

/// The address to mount from on this machine.
fn host(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.to_string(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) if ip.is_unspecified() => format!("[{}]", Ipv6Addr::LOCALHOST),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

#[cfg(test)]
mod tests;
