//! The procedures of the lock manager.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use forebay_lock::{Client, LockOutcome, Owner, Range, Share, Wanted};
use forebay_types::Inode;
use forebay_vfs::{Access, Error, FileKind, Trees};

use super::Lock;
use super::wire::{
    CancelArguments, LockArguments, ShareArguments, Status, TestArguments, UnlockArguments, object,
};
use crate::locks::{Callback, LockManager, Peer};
use crate::nfs3;
use crate::xdr::{Malformed, Reader, Writer};

const TEST: u32 = 1;
const LOCK: u32 = 2;
const CANCEL: u32 = 3;
const SHARE: u32 = 20;
const UNSHARE: u32 = 21;
const NM_LOCK: u32 = 22;

/// Context of a call.
pub(crate) struct Request<'a, F> {
    /// Context of NFS calls: handles, exports, and the caller.
    pub(crate) nfs: nfs3::Request<'a, F>,
    pub(crate) locks: &'a LockManager,
    /// The local address that the client connected to.
    pub(crate) local: IpAddr,
    pub(crate) now: Instant,
}

/// How a client asks for a lock: as a reclaim of one from before a restart, or as a new one.
#[derive(Clone, Copy)]
struct Asked {
    wait: bool,
    reclaim: bool,
    /// Whether the client expects the lock to survive a restart of the server.
    monitored: bool,
    state: i32,
}

impl<F: Trees> Request<'_, F> {
    /// The client's address, and the local address that it knows.
    pub(super) fn remote(&self) -> (IpAddr, IpAddr) {
        (self.nfs.client.address, self.local)
    }

    /// Executes a call that has results, and appends them.
    pub(super) async fn answer(
        &self,
        procedure: u32,
        arguments: Reader<'_>,
        results: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        match procedure {
            TEST => self.test(TestArguments::decode(arguments)?, results).await,
            LOCK | NM_LOCK => {
                let arguments = LockArguments::decode(arguments)?;
                let monitored = procedure == LOCK;
                let asked = Asked {
                    // Clients that are not monitored get no callback either.
                    wait: arguments.block && monitored,
                    reclaim: arguments.reclaim,
                    monitored,
                    state: arguments.state,
                };
                let status = self.lock(&arguments, asked).await;
                self.put_status(results, arguments.cookie, status);
            }
            CANCEL => {
                let arguments = CancelArguments::decode(arguments)?;
                let status = self.cancel(&arguments).unwrap_or_else(|status| status);
                self.put_status(results, arguments.cookie, status);
            }
            SHARE | UNSHARE => {
                let arguments = ShareArguments::decode(arguments)?;
                let status = if procedure == SHARE {
                    self.share(&arguments).await
                } else {
                    self.unshare(&arguments)
                };
                let status = status.unwrap_or_else(|status| status);
                self.put_status(results, arguments.cookie, status);
                // Clients ignore `sequence`.
                Writer::new(results).u32(0);
            }
            // UNLOCK
            _ => {
                let arguments = UnlockArguments::decode(arguments)?;
                let status = self.unlock(&arguments).unwrap_or_else(|status| status);
                self.put_status(results, arguments.cookie, status);
            }
        }
        Ok(())
    }

    /// FREE_ALL: a client that is not monitored was rebooted.
    pub(super) fn free_all(&self, mut arguments: Reader<'_>) -> Result<(), Malformed> {
        let name = object(&mut arguments)?;
        // The client's state number.
        arguments.u32()?;
        arguments.end()?;
        self.locks
            .notify_granted(self.locks.table.free(&self.client(name), None));
        Ok(())
    }

    /// Appends the beginning of all results, and counts the status.
    fn put_status(&self, results: &mut Vec<u8>, cookie: &[u8], status: Status) {
        self.nfs.metrics.lock_answers.answered(status);
        write_status(results, cookie, status);
    }

    async fn test(&self, arguments: TestArguments<'_>, results: &mut Vec<u8>) {
        let tested = async {
            let Some(file) = self.lockable(arguments.lock.handle).await? else {
                return in_snapshot(arguments.exclusive).map(|_| None);
            };
            if !self.locks.admits(false, self.now) {
                return Err(Status::DENIED_GRACE_PERIOD);
            }
            let wanted = self.wanted(&arguments.lock, arguments.exclusive, 0)?;
            Ok(self.locks.table.test(file, &wanted))
        };
        match tested.await {
            Ok(None) => self.put_status(results, arguments.cookie, Status::GRANTED),
            Err(status) => self.put_status(results, arguments.cookie, status),
            Ok(Some(holder)) => {
                self.put_status(results, arguments.cookie, Status::DENIED);
                let mut writer = Writer::new(results);
                writer.bool(holder.exclusive);
                writer.u32(holder.owner.process.cast_unsigned());
                writer.opaque(&holder.owner.handle);
                writer.u64(holder.range.offset());
                writer.u64(holder.range.length());
            }
        }
    }

    async fn lock(&self, arguments: &LockArguments<'_>, asked: Asked) -> Status {
        let lock = &arguments.lock;
        let locked = async {
            let Some(file) = self.lockable(lock.handle).await? else {
                return in_snapshot(arguments.exclusive);
            };
            let wanted = self.wanted(lock, arguments.exclusive, asked.state)?;
            self.check_grace(asked.reclaim)?;
            // Lives until the lock is in the table.
            let _guard = match asked.monitored {
                true => Some(self.note(&wanted.owner.client).await?),
                false => None,
            };
            let callback = asked.wait.then(|| Callback {
                cookie: arguments.cookie.to_vec(),
                handle: lock.handle.to_vec(),
                local: self.local,
            });
            let (outcome, grants) = self.locks.table.lock(file, &wanted, callback);
            self.locks.notify_granted(grants);
            Ok(status(outcome))
        };
        locked.await.unwrap_or_else(|status| status)
    }

    fn cancel(&self, arguments: &CancelArguments<'_>) -> Result<Status, Status> {
        let lock = &arguments.lock;
        let Some(file) = self.file(lock.handle)? else {
            return Ok(Status::DENIED);
        };
        let wanted = self.wanted(lock, arguments.exclusive, 0)?;
        let (found, grants) = self.locks.table.cancel(file, &wanted);
        self.locks.notify_granted(grants);
        Ok(match found {
            true => Status::GRANTED,
            false => Status::DENIED,
        })
    }

    /// Ranges without a lock may be unlocked, in the grace period too: a client that releases a lock will not
    /// reclaim it.
    fn unlock(&self, arguments: &UnlockArguments<'_>) -> Result<Status, Status> {
        let lock = &arguments.lock;
        let Some(file) = self.file(lock.handle)? else {
            return Ok(Status::GRANTED);
        };
        let wanted = self.wanted(lock, false, 0)?;
        let (done, grants) = self.locks.table.unlock(file, &wanted.owner, wanted.range);
        self.locks.notify_granted(grants);
        Ok(match done {
            true => Status::GRANTED,
            false => Status::DENIED_NOLOCKS,
        })
    }

    async fn share(&self, arguments: &ShareArguments<'_>) -> Result<Status, Status> {
        let Some(file) = self.lockable(arguments.handle).await? else {
            return in_snapshot(arguments.access & WRITE_ACCESS != 0);
        };
        self.check_grace(arguments.reclaim)?;
        let share = self.reservation(arguments);
        let _guard = self.note(&share.client).await?;
        Ok(status(self.locks.table.share(file, share)))
    }

    fn unshare(&self, arguments: &ShareArguments<'_>) -> Result<Status, Status> {
        if let Some(file) = self.file(arguments.handle)? {
            self.locks.table.unshare(file, &self.reservation(arguments));
        }
        Ok(Status::GRANTED)
    }

    fn reservation(&self, arguments: &ShareArguments<'_>) -> Share {
        let client = self.client(arguments.caller);
        Share {
            incarnation: self.locks.incarnation(&client, 0),
            client: Arc::new(client),
            handle: arguments.owner.to_vec(),
            access: arguments.access,
            deny: arguments.deny,
        }
    }

    fn check_grace(&self, reclaim: bool) -> Result<(), Status> {
        match self.locks.admits(reclaim, self.now) {
            true => Ok(()),
            false => Err(Status::DENIED_GRACE_PERIOD),
        }
    }

    async fn note(&self, client: &Client) -> Result<crate::locks::Guard<'_>, Status> {
        let peer = Peer {
            client: client.clone(),
            local: self.local,
        };
        self.locks.note(&peer).await.map_err(|error| {
            tracing::warn!(client = %client.host, %error, "a client gets no lock, because the list of clients that hold locks cannot be stored");
            Status::DENIED_NOLOCKS
        })
    }

    fn client(&self, name: &[u8]) -> Client {
        Client {
            host: self.nfs.client.address,
            name: name.to_vec(),
        }
    }

    fn wanted(&self, lock: &Lock<'_>, exclusive: bool, state: i32) -> Result<Wanted, Status> {
        let range = Range::new(lock.offset, lock.length).map_err(|_| Status::FBIG)?;
        let client = self.client(lock.caller);
        let incarnation = self.locks.incarnation(&client, state);
        let owner = Owner {
            client: Arc::new(client),
            process: lock.process,
            handle: lock.owner.to_vec(),
        };
        Ok(Wanted {
            owner: Arc::new(owner),
            range,
            exclusive,
            incarnation,
        })
    }

    /// Returns the file that a handle names, whether it exists or not; `None` for one in a snapshot. A handle that this
    /// server did not make, or that is not for this client, is stale.
    fn file(&self, handle: &[u8]) -> Result<Option<Inode>, Status> {
        let target = self.nfs.target(handle).map_err(|_| Status::STALE_FH)?;
        Ok(target.object.to_lock())
    }

    /// Returns the file that a handle names, if the caller may lock it: it is an existing regular file that the caller
    /// may read or write. Otherwise users without access could block those that have it. `None` for a file in a snapshot:
    /// nobody changes it, so all shared locks are granted, and no others.
    async fn lockable(&self, handle: &[u8]) -> Result<Option<Inode>, Status> {
        let target = self.nfs.target(handle).map_err(|_| Status::STALE_FH)?;
        let identity = self.nfs.identity(target).map_err(|_| Status::FAILED)?;
        let wanted = Access(Access::READ.0 | Access::MODIFY.0);
        let (granted, attributes) =
            target
                .object
                .access(&identity, wanted)
                .await
                .map_err(|error| match error {
                    Error::Stale | Error::NotFound => Status::STALE_FH,
                    // The bucket is unreachable: this status makes the client ask again.
                    Error::Delay => Status::DENIED_GRACE_PERIOD,
                    _ => Status::FAILED,
                })?;
        let owns = attributes.uid == identity.uid;
        if attributes.kind != FileKind::Regular || granted.0 & wanted.0 == 0 && !owns {
            return Err(Status::FAILED);
        }
        Ok(target.object.to_lock())
    }
}

/// The bit of `fsh4_access` for writing (RFC 1813, appendix II).
const WRITE_ACCESS: u32 = 2;

/// The answer to a request for a lock of a file in a snapshot.
fn in_snapshot(exclusive: bool) -> Result<Status, Status> {
    match exclusive {
        true => Err(Status::ROFS),
        false => Ok(Status::GRANTED),
    }
}

fn status(outcome: LockOutcome) -> Status {
    match outcome {
        LockOutcome::Granted => Status::GRANTED,
        LockOutcome::Denied => Status::DENIED,
        LockOutcome::Blocked => Status::BLOCKED,
        LockOutcome::NoLocks => Status::DENIED_NOLOCKS,
    }
}

fn write_status(results: &mut Vec<u8>, cookie: &[u8], status: Status) {
    let mut writer = Writer::new(results);
    writer.opaque(cookie);
    writer.u32(status.0);
}

/// GRANTED at this server, which waits for no locks.
pub(super) fn not_waiting(arguments: Reader<'_>, results: &mut Vec<u8>) -> Result<(), Malformed> {
    let arguments = TestArguments::decode(arguments)?;
    write_status(results, arguments.cookie, Status::DENIED);
    Ok(())
}
