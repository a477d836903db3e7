//! The gateway: one volume, served over NFS, as [`crate::serve`] runs it.

mod archived;
mod control;
mod cost;
mod metrics;
mod open_files;
mod stopping;
mod trash;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_fs::{Expected, FsConfig, Introduction, LogConfig, Opening, Stopped, Takeover, Volume};
use forebay_nfs::rpcbind::Registration;
use forebay_nfs::{
    CallWatch, Export, ExportControl, Limits, Server, ServerConfig, TlsControl, View,
};
use forebay_object::{CredentialSource, Needs, Store};
use forebay_types::{Inode, VolumeId};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::config::{self, Config, LogMode};
use crate::credentials::Credentials;
use crate::exports;
use crate::fit;
use crate::live::Recorder;
use crate::locks::{lock_config, register_with_rpcbind};
use crate::metrics::Metrics;
use crate::new_volume::NewVolume;
use crate::schedule::Keeper;
use crate::serve::{Failure, Gateway};
use crate::store;
use crate::tls;
use crate::trace::{Paths, SlowCalls};
use crate::watch::{Counters, Returning, Watcher};
use archived::Archived;
use cost::Costs;
use open_files::{allowed_connections, raise_open_files};
use stopping::{DRAIN, stop_times};

/// The limit for closing a volume whose gateway cannot listen.
const CLOSE_AFTER_FAILURE: Duration = Duration::from_secs(3);

/// Fraction of a stop's time in which the volume may publish; the rest is for closing everything.
const FLUSH_SHARE: f64 = 0.9;

/// Makes an empty volume in the configured store, sealed or not according to `expected`.
///
/// # Errors
/// Why the store cannot hold a volume, as a message to the user.
pub async fn format(config: &Config, expected: &Expected) -> Result<String, String> {
    let store = open_store(config, true)
        .await
        .map_err(|error| error.to_string())?;
    try_out(&store).await?;
    let begun = Instant::now();
    let made = Volume::format_as(&store, expected);
    let made = store::unless_refused(&store, Needs::Writes, made).await?;
    let volume = made.map_err(|error| store.explained(begun.into(), error))?;
    Ok(ready(volume, &store))
}

/// Checks that a store can hold a volume.
async fn try_out(store: &Store) -> Result<(), String> {
    let probed = forebay_object::probe(store).await;
    probed.map_err(|error| error.to_string())
}

fn ready(volume: VolumeId, store: &Store) -> String {
    format!("volume {volume} is ready at {}", store.url)
}

/// Opens the store. `create` creates a missing folder.
async fn open_store(config: &Config, create: bool) -> Result<Store, forebay_object::OpenError> {
    let options = crate::store::options(config, create);
    forebay_object::open(&config.store.to_string(), &options).await
}

/// A volume that is open and served.
pub struct NfsGateway {
    volume: Volume,
    /// The source of credentials for requests to the bucket, if they need some.
    credentials: Option<CredentialSource>,
    store_url: String,
    data_dir: PathBuf,
    costs: Arc<Costs>,
    address: SocketAddr,
    /// The address of the admin HTTP server, if there is one.
    admin_address: Option<SocketAddr>,
    started: Instant,
    /// Maximum number of bytes that background work reads and writes per second.
    background_rate: u64,
    /// The current exports.
    exports: Mutex<Vec<Export>>,
    export_control: ExportControl<Volume>,
    tls_control: TlsControl,
    /// Sends the time in which calls may finish, to stop the NFS server; dropping it stops the server as well.
    shutdown: Mutex<Option<oneshot::Sender<Duration>>>,
    server: Mutex<Option<JoinHandle<()>>>,
    watcher: Arc<Watcher>,
    returning: Returning,
    /// The registration with rpcbind, if there is one.
    registration: Mutex<Option<Registration>>,
    metrics: Metrics,
    recorder: Recorder,
    calls: CallWatch,
    slow_calls: SlowCalls,
    /// Snapshots by the schedule.
    keeper: Arc<Keeper>,
    archived: Arc<Archived>,
}

impl Paths for Volume {
    async fn path_of(&self, fileid: u64) -> Option<Vec<u8>> {
        Volume::path_of(self, Inode(fileid)).await
    }
}

impl NfsGateway {
    /// Opens the volume and listens. If the store is empty, a volume is made first, if `new` allows it.
    ///
    /// # Errors
    /// Why it cannot serve, as a message to the user.
    pub async fn open(
        config: Config,
        credentials: Credentials,
        new: NewVolume,
        opening: Opening,
    ) -> Result<NfsGateway, Failure> {
        opening.begin("testing the features of the store");
        let open_files = raise_open_files();
        // Errors of these files are found before anything is opened.
        let tls = tls::load(&config)?;
        let store = match open_store(&config, new.is_meant(&config)).await {
            Err(forebay_object::OpenError::FolderMissing { path }) => {
                new.allow(&config, None).await?;
                let folder = path.display();
                return Err(format!("the folder {folder} was removed; start again").into());
            }
            opened => opened.map_err(|error| error.to_string())?,
        };
        // A port that is in use is found before the volume is opened, and before a fence is taken.
        let probe = std::net::TcpListener::bind(config.listen);
        drop(probe.map_err(|error| listen_failed(config.listen, &error))?);
        let Credentials {
            expected,
            typed_once,
        } = credentials;
        let fs = FsConfig {
            expected,
            opening: opening.clone(),
            ..fs_config(&config)
        };
        let begun = Instant::now();
        let volume = match Volume::open(&store, fs.clone()).await {
            Err(error) if error.is_not_formatted() && typed_once => {
                let problem = format!(
                    "{error}; a new volume takes a passphrase that is typed twice, or from a file"
                );
                return Err(problem.into());
            }
            Err(error) if error.is_not_formatted() => {
                opening.begin("making the volume, in a store that has none");
                new.allow(&config, Some(&store)).await?;
                try_out(&store).await?;
                let made = Volume::format_and_open(&store, fs).await;
                if let Ok(volume) = &made {
                    tracing::info!("{}", ready(volume.id(), &store));
                }
                made
            }
            opened => opened,
        };
        let volume = volume.map_err(|error| match error.is_held() {
            true => Failure::TakenOver(error.to_string()),
            false => Failure::Failed(store.explained(begun.into(), error)),
        })?;
        if let Some(warning) = fit::volume_warning(volume.status().used_bytes, &config) {
            tracing::warn!("{warning}");
        }
        opening.begin("listening, and registering with rpcbind");
        let exports = exports::served(&config);
        let connections = allowed_connections(config.max_connections, open_files);
        if connections < config.max_connections {
            tracing::warn!(
                "the limit of open files of this process is {}: the gateway serves {connections} connections at \
                 once, not {} (max_connections); raise the limit (ulimit -Hn, LimitNOFILE= of a systemd unit, \
                 --ulimit nofile= of a container) or lower max_connections",
                open_files.unwrap_or_default(),
                config.max_connections
            );
        }
        let limits = Limits::default();
        let nfs = ServerConfig {
            handle_key: volume.handle_key(),
            volume: volume.id(),
            exports: exports.clone(),
            limits: Limits {
                connections: connections as usize,
                stranger_connections: limits
                    .stranger_connections
                    .min(1 + connections as usize / 8),
                // A part of the 128 MiB beside the block buffers.
                shared_bytes: 24 << 20,
                ..limits
            },
        };
        let listening = async {
            let view = |view| seen(&volume, view);
            let server = Server::bind_views(config.listen, nfs, view)
                .await
                .map_err(|error| listen_failed(config.listen, &error))?;
            let address = server.local_addr().map_err(|error| error.to_string())?;
            let export_control = server.export_control();
            let call_watch = server.call_watch();
            let tls_control = server.tls_control();
            tls_control.replace(tls);
            let server = server.with_locks(lock_config(&config)).await;
            let server = server.map_err(|error| {
                let folder = config.data_dir.display();
                format!("cannot store the list of clients that hold locks in {folder}: {error}; check that the folder belongs to this user, and that its disk is not full")
            })?;
            let registration = register_with_rpcbind(config.rpcbind, address).await?;
            Ok::<_, Failure>((
                server,
                address,
                export_control,
                tls_control,
                call_watch,
                registration,
            ))
        };
        let listening = listening.await;
        if listening.is_err() {
            // No client was served: another gateway may have the volume.
            volume.close(CLOSE_AFTER_FAILURE).await;
        }
        let (server, address, export_control, tls_control, call_watch, registration) = listening?;
        let slow_calls = SlowCalls::start(call_watch.clone(), volume.clone(), &config);
        let watched = volume.clone();
        let watcher = Watcher::new(
            move || watched.status(),
            Counters {
                troubles: vec![volume.troubles(), server.troubles()],
                requests: store.requests.clone(),
            },
        );
        let (watcher, started) = (Arc::new(watcher), Instant::now());
        let returning = Returning::new(&store);
        let keeper = Arc::new(Keeper::new(config.snapshot_schedule.0.clone()));
        let archived = Arc::new(Archived::new(&config.data_dir));
        let state = metrics::VolumeState {
            volume: volume.clone(),
            watcher: watcher.clone(),
            keeper: keeper.clone(),
            started,
        };
        let calls = server.metrics();
        let costs = Arc::new(Costs::new(&config, store.requests.clone(), volume.clone()));
        let metrics = Metrics::new(vec![
            Arc::new(state),
            keeper.clone(),
            archived.clone(),
            calls.clone(),
            store.requests,
            Arc::new(store.health),
            costs.clone(),
        ]);
        let (shutdown, stop) = oneshot::channel::<Duration>();
        // An error of the receiver means that the sender was dropped, which is a stop as well.
        let server = tokio::spawn(server.serve_until(async { stop.await.unwrap_or(DRAIN) }));
        Ok(NfsGateway {
            credentials: store.credentials,
            store_url: store.url,
            data_dir: config.data_dir.clone(),
            costs,
            address,
            admin_address: config.admin_listen.0,
            started,
            background_rate: config.background_rate.bytes(),
            exports: Mutex::new(exports),
            export_control,
            tls_control,
            shutdown: Mutex::new(Some(shutdown)),
            server: Mutex::new(Some(server)),
            watcher,
            returning,
            registration: Mutex::new(registration),
            recorder: Recorder::new(metrics.clone(), calls, volume.clone()),
            volume,
            metrics,
            calls: call_watch,
            slow_calls,
            keeper,
            archived,
        })
    }
}

/// Whether the bucket does not answer. Missing objects are looked for by the publisher.
fn is_away(volume: &Volume) -> bool {
    volume.gone().is_none() && volume.status().store_trouble.is_some()
}

fn listen_failed(address: SocketAddr, error: &std::io::Error) -> String {
    let advice = match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "another program listens there: stop it, or choose another address with --listen"
        }
        std::io::ErrorKind::PermissionDenied => {
            "ports below 1024 are for root: choose a higher one with --listen"
        }
        std::io::ErrorKind::AddrNotAvailable => {
            "this machine does not have that address (`ip address` lists its addresses): choose one of them with --listen, or 0.0.0.0 for all"
        }
        _ => "choose an address of this machine with --listen",
    };
    format!("cannot listen on {address}: {error}; {advice}")
}

fn fs_config(config: &Config) -> FsConfig {
    let log = match config.log {
        LogMode::Disk => LogConfig::Disk {
            limit: config.log_limit.bytes(),
            segment: config.log_segment.bytes(),
        },
        LogMode::None => LogConfig::None,
    };
    let dedup = match config.dedup {
        config::Dedup::Off => forebay_fs::Dedup::Off,
        config::Dedup::Full => forebay_fs::Dedup::Full,
        config::Dedup::Fast => forebay_fs::Dedup::Fast,
    };
    FsConfig {
        log,
        seal_log: config.seal_log.is_on(),
        compression: exports::compressed(config.compression, config.compression_level),
        dedup,
        metadata_cache: config.metadata_cache.bytes(),
        checkpoint_interval: config.checkpoint_interval,
        checkpoint_bytes: config.checkpoint_bytes.bytes(),
        upload_parallel: config.upload_parallel as usize,
        pack_bytes: config.pack_bytes.bytes(),
        volume_limit: config.volume_limit.bytes(),
        snapshots_count: config.snapshots_count.is_on(),
        trash_limit: config.trash_limit.bytes(),
        disk_cache_limit: config.disk_cache_limit.bytes(),
        rewrite_below: config.rewrite_below,
        defragment_after: config.defragment_after,
        background_rate: config.background_rate.bytes(),
        background_requests: u64::from(config.background_requests),
        scrub_rate: config.scrub_rate.bytes(),
        scrub_interval: config.scrub_interval,
        takeover: match config.takeover {
            config::Takeover::Refuse => Takeover::Refuse,
            config::Takeover::Allow => Takeover::Allow,
        },
        introduction: Introduction {
            host: host_name(),
            address: config.listen.to_string(),
        },
        ..FsConfig::new(config.data_dir.clone()).with_memory(config.memory_limit.bytes())
    }
}

/// The name of this machine, for people.
fn host_name() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

/// The volume as seen by the clients of a rule.
fn seen(volume: &Volume, view: View) -> Arc<Volume> {
    let seen = volume.with_commit_mode(exports::commit_mode(view));
    Arc::new(match exports::compression(view) {
        Some(compression) => seen.with_compression(compression),
        None => seen,
    })
}

impl Gateway for NfsGateway {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn replace_exports(&self, config: &Config) -> Result<(), String> {
        let tls = tls::load(config)?;
        let served = exports::served(config);
        // Held until the new exports are in force, so that the shown exports are those set last.
        let mut shown = self.exports.lock();
        self.export_control
            .replace(served.clone(), |view| seen(&self.volume, view))
            .map_err(|error| error.to_string())?;
        self.tls_control.replace(tls);
        *shown = served;
        self.slow_calls.set(config.slow_call.0);
        self.keeper.set(config.snapshot_schedule.0.clone());
        if let Some(credentials) = &self.credentials {
            credentials.read_again();
        }
        Ok(())
    }

    async fn watch(&self) {
        tokio::select! {
            () = self.watcher.clone().run() => {}
            () = self.recorder.run() => {}
            () = self.costs.meter.run() => {}
            () = self.keeper.run(&self.volume) => {}
            () = self.archived.run() => {}
            () = self.returning.run(|| is_away(&self.volume)) => {}
        }
    }

    async fn failed(&self) -> Failure {
        let stopped = self.volume.stopped().await;
        if stopped != Stopped::Fenced {
            return Failure::Failed(stopped.to_string());
        }
        let successor = match self.volume.successor().await {
            Some(holder) => format!("; it is held by {holder}"),
            None => String::new(),
        };
        Failure::TakenOver(format!("{stopped}{successor}"))
    }

    async fn stop(&self, limit: Duration) -> Result<u64, String> {
        let registration = self.registration.lock().take();
        if let Some(registration) = registration
            && let Err(error) = registration.remove().await
        {
            tracing::warn!("cannot remove this server's registration from rpcbind: {error}");
        }
        let away = self.volume.status().store_trouble.map(|(_, since)| since);
        let (drain, publish) = stop_times(limit, away);
        if publish < limit {
            tracing::warn!(
                "the bucket does not answer, so the shutdown waits for it at most {}: unpublished changes stay in the log",
                humantime::format_duration(publish)
            );
        }
        let deadline = Instant::now() + publish;
        if let Some(shutdown) = self.shutdown.lock().take() {
            // The receiver is dropped if the server has ended.
            let _ = shutdown.send(drain);
        }
        let server = self.server.lock().take();
        if let Some(server) = server {
            server
                .await
                .map_err(|error| format!("the NFS server failed: {error}"))?;
        }
        // Slow calls leave less time for publishing, but not nothing.
        let left = deadline.saturating_duration_since(Instant::now());
        let publish = left.max(publish / 3).mul_f64(FLUSH_SHARE);
        match self.volume.close(publish).await {
            forebay_fs::Closed::Published => Ok(0),
            forebay_fs::Closed::InLog if let Some(gone) = self.volume.gone() => Err(gone),
            forebay_fs::Closed::InLog => Ok(self.volume.status().unpublished_bytes().max(1)),
        }
    }
}
