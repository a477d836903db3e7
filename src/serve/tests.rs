//! The life of a gateway, with a fake one that only records its calls.

use std::path::Path;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::*;
use crate::admin::fake::FakeWith;
use crate::admin::status;
use crate::config::Inputs;

/// The behaviour of the fake gateway.
#[derive(Default)]
struct Life {
    /// The reason of its failure, if it fails as soon as it runs.
    fails: Option<Failure>,
    /// It never finishes stopping.
    hangs: bool,
    /// Bytes that it leaves unpublished.
    left: u64,
    /// Notified when `stop` is called.
    stopping: Arc<Notify>,
    /// Paths of the exports, for each time that they were replaced.
    replaced: Arc<Mutex<Vec<String>>>,
    /// It refuses new exports.
    refuses: bool,
}

type Fake = FakeWith<Life>;

fn fake(own: Life) -> Fake {
    Fake {
        own,
        ..Fake::default()
    }
}

impl Gateway for Fake {
    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], 12049).into()
    }

    fn replace_exports(&self, config: &Config) -> Result<(), String> {
        if self.own.refuses {
            return Err("two exports have one number".to_owned());
        }
        let paths: Vec<_> = config
            .exports
            .iter()
            .map(|export| &export.path[..])
            .collect();
        self.own.replaced.lock().push(paths.join(" "));
        Ok(())
    }

    async fn watch(&self) {
        std::future::pending().await
    }

    async fn failed(&self) -> Failure {
        match &self.own.fails {
            Some(failure) => failure.clone(),
            None => std::future::pending().await,
        }
    }

    async fn stop(&self, limit: Duration) -> Result<u64, String> {
        assert_eq!(limit, Duration::from_secs(30));
        self.own.stopping.notify_one();
        if self.own.hangs {
            std::future::pending::<()>().await;
        }
        Ok(self.own.left)
    }
}

fn config(data_dir: &Path, flags: &[(&'static str, &str)]) -> Config {
    let own = [
        ("data_dir", data_dir.to_str().unwrap()),
        ("admin_listen", "none"),
    ];
    let flags = own
        .iter()
        .chain(flags)
        .map(|(key, text)| (*key, (*text).to_owned()));
    let inputs = Inputs {
        flags: flags.collect(),
        file: None,
        variables: Vec::new(),
        system_file: "/nonexistent".into(),
        is_root: false,
    };
    Config::load(&inputs).unwrap()
}

/// The sending end of [`Signals`].
struct Sender {
    stop: mpsc::Sender<&'static str>,
    reload: mpsc::Sender<()>,
}

fn signals_by_hand() -> (Sender, Signals) {
    let (stops, stop) = mpsc::channel(2);
    let (reloads, reload) = mpsc::channel(1);
    let sender = Sender {
        stop: stops,
        reload: reloads,
    };
    (sender, Signals { stop, reload })
}

/// Runs the fake gateway. Sends the first signal when it is running, and each further one when it has begun to stop.
async fn run(fake: Fake, signals: &[&'static str]) -> Result<(), Failure> {
    run_in(tempfile::tempdir().unwrap().path(), fake, signals).await
}

/// Does so in a folder that the test examines afterwards.
async fn run_in(dir: &Path, fake: Fake, signals: &[&'static str]) -> Result<(), Failure> {
    let config = config(dir, &[]);
    let (sender, receiver) = signals_by_hand();
    let stopping = fake.own.stopping.clone();
    let send = async {
        for (index, name) in signals.iter().enumerate() {
            if index > 0 {
                stopping.notified().await;
            } else {
                until_running(dir).await;
            }
            sender.stop.send(*name).await.unwrap();
        }
        std::future::pending::<()>().await;
    };
    let mut output = std::io::sink();
    let again = || Ok(config.clone());
    let serve = serve_until(
        &config,
        again,
        |_, _| async { Ok(fake) },
        receiver,
        &mut output,
    );
    timeout(Duration::from_secs(20), async {
        tokio::select! { result = serve => result, () = send => unreachable!() }
    })
    .await
    .unwrap()
}

async fn until_running(data_dir: &Path) {
    while status(data_dir).await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_signal_stops_the_gateway_cleanly() {
    assert_eq!(run(Fake::default(), &["SIGTERM"]).await, Ok(()));
    // Remaining bytes are in the log: that is not a failure.
    assert_eq!(
        run(
            fake(Life {
                left: 4096,
                ..Life::default()
            }),
            &["SIGINT"]
        )
        .await,
        Ok(())
    );
}

#[tokio::test]
async fn a_second_signal_ends_a_stop_that_hangs() {
    let result = run(
        fake(Life {
            hangs: true,
            ..Life::default()
        }),
        &["SIGTERM", "SIGINT"],
    )
    .await;
    assert_eq!(
        result,
        Err("stopped at once by a second SIGINT".to_owned().into())
    );
}

#[tokio::test]
async fn a_gateway_that_fails_is_stopped_and_its_reason_reported() {
    let fake = fake(Life {
        fails: Some(Failure::Failed("the disk is gone".to_owned())),
        ..Life::default()
    });
    let stopping = fake.own.stopping.clone();
    assert_eq!(
        run(fake, &[]).await,
        Err(Failure::Failed("the disk is gone".to_owned()))
    );
    timeout(Duration::from_secs(1), stopping.notified())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_gateway_that_was_taken_over_says_so_until_it_serves_again() {
    let dir = tempfile::tempdir().unwrap();
    let taken = Failure::TakenOver("taken by nas2".to_owned());
    let fake = fake(Life {
        fails: Some(taken.clone()),
        left: 4096,
        ..Life::default()
    });
    assert_eq!(run_in(dir.path(), fake, &[]).await, Err(taken));
    let asked = status(dir.path()).await.unwrap_err().to_string();
    assert!(
        asked.contains("no gateway runs") && asked.contains("taken by nas2"),
        "{asked}"
    );
    let served = run_in(dir.path(), Fake::default(), &["SIGTERM"]).await;
    assert_eq!(served, Ok(()));
    let asked = status(dir.path()).await.unwrap_err().to_string();
    assert!(!asked.contains("nas2"), "{asked}");
}

#[tokio::test]
async fn a_gateway_that_cannot_be_opened_says_why_and_frees_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), &[]);
    let (_sender, receiver) = signals_by_hand();
    let open = |_, _| async { Err::<Fake, _>("the bucket holds another volume".to_owned().into()) };
    let result = serve_until(
        &config,
        || Ok(config.clone()),
        open,
        receiver,
        &mut std::io::sink(),
    )
    .await;
    assert_eq!(
        result,
        Err(Failure::Failed(
            "the bucket holds another volume".to_owned()
        ))
    );
    Server::bind(dir.path()).unwrap();
}

#[tokio::test]
async fn a_signal_while_opening_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), &[]);
    let (sender, receiver) = signals_by_hand();
    sender.stop.send("SIGTERM").await.unwrap();
    let open = |_, _| std::future::pending::<Result<Fake, Failure>>();
    let result = serve_until(
        &config,
        || Ok(config.clone()),
        open,
        receiver,
        &mut std::io::sink(),
    )
    .await;
    assert_eq!(result, Ok(()));
}

#[tokio::test]
async fn a_folder_in_use_is_refused_before_anything_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), &[]);
    let _other = Server::bind(dir.path()).unwrap();
    let (_sender, receiver) = signals_by_hand();
    let open = |_, _| async { panic!("opened") };
    let result = serve_until::<Fake, _>(
        &config,
        || Ok(config.clone()),
        open,
        receiver,
        &mut std::io::sink(),
    )
    .await;
    let Err(Failure::Failed(problem)) = result else {
        panic!("{result:?}")
    };
    assert!(problem.contains("another gateway uses"), "{problem}");
}

#[tokio::test]
async fn sighup_puts_the_exports_of_the_configuration_in_force() {
    let dir = tempfile::tempdir().unwrap();
    let started = config(dir.path(), &[]);
    // A different configuration each time; one of them is wrong.
    let versions = [
        "[[export]]\npath = \"/a\"",
        "[[export]",
        "shutdown_limit = \"30s\"",
    ];
    let file = dir.path().join("forebay.toml");
    let mut rest = versions.into_iter();
    let fake = Fake::default();
    let replaced = fake.own.replaced.clone();
    let (sender, signals) = signals_by_hand();
    let read = Arc::new(Notify::new());
    let again = || {
        let inputs = Inputs {
            flags: vec![("data_dir", "/srv/forebay".to_owned())],
            file: Some(file.clone()),
            variables: Vec::new(),
            system_file: "/nonexistent".into(),
            is_root: false,
        };
        let config = Config::load(&inputs);
        read.notify_one();
        config
    };
    let send = async {
        until_running(dir.path()).await;
        for version in rest.by_ref() {
            std::fs::write(&file, version).unwrap();
            sender.reload.send(()).await.unwrap();
            read.notified().await;
        }
        sender.stop.send("SIGTERM").await.unwrap();
        std::future::pending::<()>().await;
    };
    let mut output = std::io::sink();
    let serve = serve_until(
        &started,
        again,
        |_, _| async { Ok(fake) },
        signals,
        &mut output,
    );
    let result = timeout(Duration::from_secs(20), async {
        tokio::select! { result = serve => result, () = send => unreachable!() }
    });
    assert_eq!(result.await.unwrap(), Ok(()));
    assert_eq!(*replaced.lock(), ["/a", "/"]);
}

#[test]
fn a_configuration_that_cannot_be_used_changes_nothing() {
    let started = config(Path::new("/srv/forebay"), &[]);
    let wrong = || Err(ConfigErrors(Vec::new()));
    assert!(reload(&started, wrong(), &Fake::default(), None).is_none());
    let refuses = fake(Life {
        refuses: true,
        ..Life::default()
    });
    assert!(reload(&started, Ok(started.clone()), &refuses, None).is_none());
    let gateway = Fake::default();
    let later = config(Path::new("/srv/forebay"), &[("shutdown_limit", "7s")]);
    let counts = reload(&started, Ok(later), &gateway, None).unwrap();
    assert_eq!(counts.shutdown_limit, Duration::from_secs(7));
}

#[test]
fn what_counts_only_after_the_next_start_is_named() {
    let started = config(Path::new("/srv/forebay"), &[]);
    let changed = [
        ("listen", "0.0.0.0:2049"),
        ("log_limit", "8GiB"),
        ("shutdown_limit", "1m"),
        ("clients", "10.0.0.0/8"),
        ("squash", "all_squash"),
        ("commit", "bucket"),
    ];
    let again = config(Path::new("/srv/forebay"), &changed);
    assert_eq!(
        Changes::between(&started, &again).0,
        [
            "listen = 0.0.0.0:2049 (--listen) takes effect at the next start; until then it is 127.0.0.1:2049",
            "log_limit = 8GiB (--log-limit) takes effect at the next start; until then it is 4GiB",
        ]
    );
    assert!(Changes::between(&started, &started).0.is_empty());
}

#[test]
fn the_banner_can_be_pasted_and_says_where_everything_is() {
    let banner = |address: &str, flags: &[(&'static str, &str)]| {
        let config = config(Path::new("/srv/forebay"), flags);
        Banner {
            config: &config,
            address: address.parse().unwrap(),
        }
        .to_string()
    };
    assert_eq!(
        banner("127.0.0.1:2049", &[]),
        "mount -t nfs -o vers=3,tcp,port=2049,mountport=2049,nolock 127.0.0.1:/ /mnt/forebay\n  \
         volume   file:///srv/forebay/bucket, up to 1PiB\n  \
         log      /srv/forebay, up to 4GiB\n  \
         memory   up to 1GiB for block buffers\n  \
         publish  every 5s, or 64MiB of changes\n  \
         export   / to 127.0.0.0/8, ::1, commit = disk\n"
    );
    let text = banner("[::]:12049", &[("log", "none")]);
    let mount = "mount -t nfs -o vers=3,proto=tcp6,port=12049,mountport=12049,nolock [::1]:/ /mnt/forebay\n";
    assert!(text.starts_with(mount), "{text}");
    assert!(
        text.contains("log      none: COMMIT waits for the bucket\n"),
        "{text}"
    );
    assert!(banner("0.0.0.0:2049", &[]).contains(" 127.0.0.1:/ "));
}
