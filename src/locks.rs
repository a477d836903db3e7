//! The parts of this machine that the lock manager uses: a file that survives a restart, a host name, and an rpcbind
//! that reports its port to clients.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_nfs::rpcbind::{Registration, RpcbindError, SOCKETS, register};
use forebay_nfs::{ClientListStore, LockConfig};

use crate::config::{Auto, Config};

/// Name of the file in `data_dir`.
const FILE_NAME: &str = "locks";

/// The lock manager's settings for this configuration.
pub(crate) fn lock_config(config: &Config) -> LockConfig {
    let folder = config.data_dir.clone();
    let system = rustix::system::uname();
    LockConfig {
        name: system.nodename().to_string_lossy().into_owned(),
        ..LockConfig::new(config.lock_grace, Arc::new(LockFile { folder }))
    }
}

/// The list of clients that hold locks, in a file.
struct LockFile {
    folder: PathBuf,
}

impl ClientListStore for LockFile {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.folder.join(FILE_NAME)) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn replace(&self, content: &[u8]) -> io::Result<()> {
        let beside = self.folder.join(format!("{FILE_NAME}.new"));
        let mut file = File::create(&beside)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&beside, self.folder.join(FILE_NAME))?;
        File::open(&self.folder)?.sync_all()
    }
}

/// Registers a server that listens at `address` with this machine's rpcbind, if the configuration requests it.
///
/// # Errors
/// If it must be registered (`rpcbind = on`), but cannot be; as a message to the user.
pub(crate) async fn register_with_rpcbind(
    setting: Auto,
    address: SocketAddr,
) -> Result<Option<Registration>, String> {
    let must = match setting.decided() {
        Some(false) => return Ok(None),
        Some(true) => true,
        // A client elsewhere that asks this machine's rpcbind would be sent to a port that is closed for it; and a
        // client on this machine has a lock manager of its own, which takes the place of NLM there.
        None if address.ip().is_loopback() => return Ok(None),
        None => false,
    };
    let exists = |path: &&Path| path.exists();
    let [first, second] = SOCKETS.map(Path::new);
    let socket = [first, second].into_iter().find(exists).unwrap_or(first);
    match register(address, socket).await {
        Ok(registration) => {
            report(&registration, address);
            Ok(Some(registration))
        }
        Err(error) if must => Err(format!(
            "rpcbind = on, but {error}; start rpcbind, or set rpcbind = auto"
        )),
        Err(error @ RpcbindError::Absent { .. }) => {
            tracing::info!(
                "not registered: {error}; clients must name port and mountport and mount with nolock, unless rpcbind runs here when the gateway is started"
            );
            Ok(None)
        }
        Err(error) => {
            tracing::warn!("not registered: {error}; clients must mount with nolock");
            Ok(None)
        }
    }
}

fn report(registration: &Registration, address: SocketAddr) {
    if registration.taken.is_empty() {
        tracing::info!(
            "registered with rpcbind: clients find NFS, MOUNT, NLM and NSM at port {}",
            address.port()
        );
    }
    for taken in &registration.taken {
        let consequence = match taken.program {
            "NLM" => {
                "clients cannot lock through this gateway: an NFS mount or another NFS server on this machine is registered as lock manager"
            }
            "NSM" => {
                "locks of a client that crashes stay until it has mounted again: stop rpc.statd here, and restart the gateway"
            }
            _ => "clients must name port and mountport",
        };
        tracing::warn!("another server is registered with rpcbind: {taken}; {consequence}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_replaced_as_a_whole_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().to_owned();
        let file = LockFile { folder };
        assert_eq!(file.load().unwrap(), None);
        for content in [&b"long content"[..], b"short"] {
            file.replace(content).unwrap();
            assert_eq!(file.load().unwrap().as_deref(), Some(content));
        }
        // An incomplete file that a crash left beside it is ignored.
        fs::write(dir.path().join("locks.new"), "half").unwrap();
        assert_eq!(file.load().unwrap().as_deref(), Some(&b"short"[..]));
    }

    #[tokio::test]
    async fn a_gateway_for_this_machine_alone_is_not_registered() {
        for address in ["127.0.0.1:2049", "[::1]:2049"] {
            let address = address.parse().unwrap();
            let registration = register_with_rpcbind(Auto::Auto, address).await;
            assert!(registration.unwrap().is_none());
        }
        let any = "0.0.0.0:2049".parse().unwrap();
        assert!(
            register_with_rpcbind(Auto::Off, any)
                .await
                .unwrap()
                .is_none()
        );
    }
}
