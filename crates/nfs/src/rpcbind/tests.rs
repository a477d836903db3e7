//! Registration with a fake rpcbind: a table behind a socket in a folder.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};

use super::*;
use crate::rpc::{Call, Reply};

type Table = BTreeMap<(u32, u32, String), String>;

/// A fake rpcbind. All its registrations belong to this user except those in `foreign`.
struct Fake {
    table: Arc<Mutex<Table>>,
    socket: PathBuf,
    folder: PathBuf,
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Fake {
    fn start(name: &str, foreign: Option<u32>) -> Fake {
        let folder = std::env::temp_dir().join(format!("rpcbind-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let table = Arc::new(Mutex::new(Table::new()));
        let shared = table.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let table = shared.clone();
                tokio::spawn(async move { serve(stream, &table, foreign).await });
            }
        });
        Fake {
            table,
            socket,
            folder,
        }
    }

    fn registered(&self) -> Vec<String> {
        let table = self.table.lock();
        let line = |((program, version, netid), address): (&(u32, u32, String), &String)| {
            format!("{program} {version} {netid} {address}")
        };
        table.iter().map(line).collect()
    }
}

async fn serve(mut stream: UnixStream, table: &Mutex<Table>, foreign: Option<u32>) -> Option<()> {
    loop {
        let length = stream.read_u32().await.ok()? & 0x7fff_ffff;
        let mut record = vec![0; length as usize];
        stream.read_exact(&mut record).await.ok()?;
        let call = Call::decode(&record).unwrap();
        assert_eq!((call.program, call.version), (100_000, 4));
        let mut reply = Reply::accepted(call.xid, Vec::new());
        let mut reader = call.arguments;
        if call.procedure == DUMP {
            for ((program, version, netid), address) in &*table.lock() {
                let mut results = reply.results();
                results.bool(true);
                results.u32(*program);
                results.u32(*version);
                results.opaque(netid.as_bytes());
                results.opaque(address.as_bytes());
                results.opaque(b"owner");
            }
            reply.results().bool(false);
        } else {
            let text = |reader: &mut Reader<'_>| {
                String::from_utf8(reader.opaque(100).unwrap().to_vec()).unwrap()
            };
            let (program, version) = (reader.u32().unwrap(), reader.u32().unwrap());
            let (netid, address) = (text(&mut reader), text(&mut reader));
            let key = (program, version, netid);
            let mut table = table.lock();
            let done = match call.procedure {
                SET if table.get(&key).is_none_or(|old| *old == address) => {
                    table.insert(key, address);
                    true
                }
                UNSET if foreign != Some(program) => table.remove(&key).is_some(),
                _ => false,
            };
            reply.results().bool(done);
        }
        stream.write_all(&reply.finish().0).await.ok()?;
    }
}

fn any(port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)
}

const ALL: [&str; 5] = [
    "100003 3 tcp 0.0.0.0.8.1",
    "100005 3 tcp 0.0.0.0.8.1",
    "100021 4 tcp 0.0.0.0.8.1",
    "100024 1 tcp 0.0.0.0.8.1",
    "100024 1 udp 0.0.0.0.8.1",
];

#[tokio::test]
async fn all_programs_are_registered_and_taken_back() {
    let fake = Fake::start("all", None);
    // Again, as after a crash.
    for _ in 0..2 {
        let registration = register(any(2049), &fake.socket).await.unwrap();
        assert_eq!(registration.taken, []);
        assert_eq!(fake.registered(), ALL);
    }
    let registration = register(any(2049), &fake.socket).await.unwrap();
    registration.remove().await.unwrap();
    assert!(fake.registered().is_empty());
}

#[tokio::test]
async fn a_server_for_both_families_is_registered_for_both() {
    let fake = Fake::start("both", None);
    let address = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 2049);
    register(address, &fake.socket).await.unwrap();
    let registered = fake.registered();
    assert_eq!(registered.len(), 10);
    assert!(registered.contains(&"100021 4 tcp6 ::.8.1".to_owned()));
    assert!(registered.contains(&"100021 4 tcp 0.0.0.0.8.1".to_owned()));
}

#[tokio::test]
async fn what_nobody_serves_any_more_is_replaced() {
    let fake = Fake::start("left", None);
    // A port that was just free.
    let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = gone.local_addr().unwrap();
    drop(gone);
    register(any(address.port()), &fake.socket).await.unwrap();
    let registration = register(any(2049), &fake.socket).await.unwrap();
    assert_eq!(registration.taken, []);
    assert_eq!(fake.registered(), ALL);
}

#[tokio::test]
async fn what_another_program_serves_stays_its_own() {
    let fake = Fake::start("other", None);
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = other.local_addr().unwrap();
    let key = (nsm::PROGRAM, nsm::VERSION, "tcp".to_owned());
    let theirs = outgoing::universal_address(any(address.port()));
    fake.table.lock().insert(key.clone(), theirs.clone());
    let registration = register(any(2049), &fake.socket).await.unwrap();
    let taken = &registration.taken[..];
    assert_eq!(taken.len(), 1);
    let said = taken[0].to_string();
    assert_eq!(said, format!("NSM (tcp) is at port {}", address.port()));
    registration.remove().await.unwrap();
    assert_eq!(fake.table.lock().get(&key), Some(&theirs));
    assert_eq!(fake.registered().len(), 1);
}

#[tokio::test]
async fn what_may_not_be_replaced_is_named() {
    let fake = Fake::start("foreign", Some(nlm::PROGRAM));
    let key = (nlm::PROGRAM, nlm::VERSION, "tcp".to_owned());
    fake.table.lock().insert(key, "127.0.0.1.0.1".to_owned());
    let registration = register(any(2049), &fake.socket).await.unwrap();
    assert_eq!(registration.taken[0].program, "NLM");
    assert_eq!(fake.registered().len(), 5);
}

#[tokio::test]
async fn no_rpcbind_is_an_error_that_names_the_socket() {
    let error = register(any(2049), Path::new("/nonexistent/socket"))
        .await
        .unwrap_err();
    assert!(matches!(&error, RpcbindError::Absent { .. }));
    assert!(error.to_string().contains("/nonexistent/socket"), "{error}");
}
