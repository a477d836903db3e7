//! A log in the temporary folder, used as by a volume.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use forebay_seal::{DataKeyId, DataKeys, Sealing, Secret, SystemEntropy};
use forebay_types::{Epoch, Lsn, VolumeId};
use forebay_wal::{
    AppendError, Appended, FileStorage, Options, RecordKind, Recovery, Storage, Wal,
};

use crate::Failure;
use crate::slow::SlowStorage;

const VOLUME: VolumeId = VolumeId([1; 16]);
/// Bytes that are retained before they are recycled: less than the backlog at which the log flushes by itself, as
/// with a publisher that keeps up.
const RETAINED: u64 = 48 << 20;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future in this thread.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park();
    }
}

/// The waits of appends for segments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    pub(crate) count: u64,
    pub(crate) time: Duration,
}

pub(crate) struct Log {
    pub(crate) wal: Wal,
    _folder: tempfile::TempDir,
}

impl Log {
    /// A new log with the usual options.
    pub(crate) fn open() -> Result<Log, Failure> {
        Log::open_with(None, |files| Arc::new(files))
    }

    /// Like [`open`](Self::open), on a slow disk.
    pub(crate) fn open_slow() -> Result<Log, Failure> {
        Log::open_with(None, |files| Arc::new(SlowStorage(files)))
    }

    /// Like [`open`](Self::open), but sealed.
    pub(crate) fn open_sealed() -> Result<Log, Failure> {
        let key = (DataKeyId(1), Secret::draw(&SystemEntropy));
        let sealing = Sealing {
            keys: Arc::new(DataKeys::new(VOLUME, key, [])),
            entropy: Arc::new(SystemEntropy),
        };
        Log::open_with(Some(sealing), |files| Arc::new(files))
    }

    fn open_with(
        sealing: Option<Sealing>,
        on: impl FnOnce(FileStorage) -> Arc<dyn Storage>,
    ) -> Result<Log, Failure> {
        let folder = tempfile::tempdir()?;
        let storage = on(FileStorage::open(folder.path())?);
        let recovery = Recovery::scan(storage, VOLUME, Lsn::ZERO)?;
        Ok(Log {
            wal: recovery.into_wal(Options {
                sealing,
                ..Options::new(VOLUME, Epoch(1))
            })?,
            _folder: folder,
        })
    }

    /// Appends, waiting where the log is full.
    pub(crate) fn append(&self, payload: &[u8], waits: &mut Waits) -> Result<Appended, Failure> {
        loop {
            match self.wal.append(RecordKind::Data, &[payload]) {
                Ok(appended) => return Ok(appended),
                Err(AppendError::Full) => {
                    let began = Instant::now();
                    wait(self.wal.room(payload.len() as u64))?;
                    waits.count += 1;
                    waits.time += began.elapsed();
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Appends `bytes` of payload in all, and recycles as it goes.
    pub(crate) fn append_bytes(&self, payload: &[u8], bytes: u64) -> Result<Waits, Failure> {
        let mut waits = Waits::default();
        for _ in 0..bytes / payload.len() as u64 {
            let Appended { lsn, end } = self.append(payload, &mut waits)?;
            if end.0 / RETAINED != lsn.0 / RETAINED {
                self.wal.recycle(end);
            }
        }
        Ok(waits)
    }
}
