//! The work as calls to an NFS server, over one connection.

use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::tree::Kind;
use super::unpack::Unpack;
use super::{BLOCK, Data, Place, Workload, wrong};
use crate::nfs_client::{Call, Client, Handle, Results, Work};

/// Bytes kept of a reply where not all of it is needed: enough for the reply to a CREATE.
const KEPT_BYTES: usize = 512;
/// A server that takes longer for one workload counts as not answering.
const TIMEOUT: Duration = Duration::from_secs(180);
const FILE: &str = "large file";
const TREE: &str = "tree";

/// Address of a server: `HOST:PORT:/export`, or `HOST:PORT:MOUNTPORT:/export` if MOUNT has a port of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerSpec {
    nfs: SocketAddr,
    mount: SocketAddr,
    export: String,
}

impl FromStr for ServerSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<ServerSpec, String> {
        let problem =
            || format!("{text:?} is not ADDRESS:PORT:/export or ADDRESS:PORT:MOUNTPORT:/export");
        let (address, path) = text.split_once(":/").ok_or_else(problem)?;
        let parts: Vec<&str> = address.split(':').collect();
        let (host, nfs, mount) = match parts[..] {
            [host, port] => (host, port, port),
            [host, port, mount] => (host, port, mount),
            _ => return Err(problem()),
        };
        let at = |port: &str| format!("{host}:{port}").parse().map_err(|_| problem());
        Ok(ServerSpec {
            nfs: at(nfs)?,
            mount: at(mount)?,
            export: format!("/{path}"),
        })
    }
}

/// A server.
pub(crate) struct Server {
    spec: ServerSpec,
    runtime: Runtime,
    /// `None` after a failure: answers may still arrive that belong to no call.
    client: Option<Client>,
    made: Made,
}

/// Objects made there.
#[derive(Default)]
struct Made {
    root: Option<Handle>,
    folder_name: String,
    folder: Option<Handle>,
    file: Option<Handle>,
    names: Vec<Handle>,
    tree_directories: Vec<Option<Handle>>,
    /// Bytes of one READ and one WRITE of sequential work.
    read_bytes: usize,
    write_bytes: usize,
}

impl Server {
    pub(crate) fn new(spec: ServerSpec) -> io::Result<Server> {
        Ok(Server {
            spec,
            runtime: Builder::new_current_thread().enable_all().build()?,
            client: None,
            made: Made::default(),
        })
    }

    /// Makes calls over the connection; opens a new one if there is none.
    fn with<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Client, &mut Made) -> io::Result<T>,
    ) -> io::Result<T> {
        let Server {
            spec,
            runtime,
            client,
            made,
        } = self;
        runtime.block_on(async {
            let mut connected = match client.take() {
                Some(client) => client,
                None => Client::connect(spec.nfs).await?,
            };
            let done = tokio::time::timeout(TIMEOUT, work(&mut connected, made)).await;
            let done = done.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
            *client = Some(connected);
            Ok(done)
        })
    }
}

impl Place for Server {
    fn has(&self, _workload: Workload) -> bool {
        true
    }

    fn begin(&mut self, folder: &str) -> io::Result<()> {
        let spec = self.spec.clone();
        self.made = Made::default();
        // Each turn uses its own connection.
        self.client = None;
        self.with(async |client, made| {
            let root = match spec.mount == spec.nfs {
                true => client.mount_export(&spec.export).await?,
                false => {
                    let mut mount = Client::connect(spec.mount).await?;
                    mount.mount_export(&spec.export).await?
                }
            };
            let limits = client.limits(&root).await?;
            (made.read_bytes, made.write_bytes) = (limits.read as usize, limits.write as usize);
            made.folder = Some(make_directory(client, &root, folder).await?);
            made.folder_name = folder.to_owned();
            made.root = Some(root);
            Ok(())
        })
    }

    fn prepare(&mut self, workload: Workload, data: &Data) -> io::Result<()> {
        self.with(async |client, made| {
            let folder = made.folder()?.clone();
            match workload {
                Workload::SequentialWrite => {
                    let (reads, writes) = (made.read_bytes, made.write_bytes);
                    let piece = data.effort.piece_bytes;
                    (made.read_bytes, made.write_bytes) = (piece.min(reads), piece.min(writes));
                    let reply = client.call(Call::create_new(&folder, FILE, 0o644)).await?;
                    made.file = Some(Results::of(&reply)?.made()?);
                }
                Workload::Unpack => {
                    let tree = make_directory(client, &folder, TREE).await?;
                    made.tree_directories = vec![Some(tree)];
                }
                _ => {}
            }
            Ok(())
        })
    }

    fn perform(&mut self, workload: Workload, data: &Data) -> io::Result<()> {
        self.with(async |client, made| match workload {
            Workload::SequentialWrite => {
                let piece = made.write_bytes;
                let pieces = data.file.chunks(piece).enumerate();
                let pieces = pieces.map(|(turn, bytes)| ((turn * piece) as u64, bytes));
                write(client, made.file()?, pieces).await
            }
            Workload::RandomWrite => {
                let blocks = (0..data.blocks.len()).map(|number| data.overwrite(number));
                write(client, made.file()?, blocks).await
            }
            Workload::SequentialRead => {
                let (file, piece) = (made.file()?, made.read_bytes);
                let count = data.file.len().div_ceil(piece);
                let last = data.file.len() - (count - 1) * piece;
                let read = |turn| Call::read(file, turn * piece as u64, piece as u32);
                client.pipeline(count as u64, last, read).await
            }
            Workload::RandomRead => {
                let file = made.file()?;
                let count = data.blocks.len();
                let read = |turn: u64| {
                    // In another order than they were written in.
                    let (offset, _) = data.overwrite(count - 1 - turn as usize);
                    Call::read(file, offset, BLOCK as u32)
                };
                client.pipeline(count as u64, BLOCK, read).await
            }
            Workload::Create => {
                let mut create = Create {
                    folder: made.folder()?,
                    names: &data.names,
                    issued: 0,
                    made: vec![None; data.names.len()],
                };
                client.run(KEPT_BYTES, &mut create).await?;
                let missing = || wrong("a file was not made".to_owned());
                let handles = create.made.into_iter().collect::<Option<_>>();
                made.names = handles.ok_or_else(missing)?;
                Ok(())
            }
            Workload::LookUp => {
                let folder = made.folder()?;
                let count = data.names.len() * data.effort.looks;
                let look = |turn| Call::lookup(folder, &data.names[data.look(turn as usize)]);
                client.pipeline(count as u64, 0, look).await
            }
            Workload::GetAttributes => {
                let handles = made.names(data)?;
                let count = data.names.len() * data.effort.looks;
                let look = |turn| Call::getattr(&handles[data.look(turn as usize)]);
                client.pipeline(count as u64, 0, look).await
            }
            Workload::List => data.compare_names(made.list(client).await?, true),
            Workload::Remove => {
                let folder = made.folder()?;
                let remove = |turn| Call::remove(folder, &data.names[turn as usize]);
                client.pipeline(data.names.len() as u64, 0, remove).await
            }
            Workload::Unpack => {
                let into = made.tree_directories.first().cloned().flatten();
                let into = into.ok_or_else(|| wrong("there is no folder".to_owned()))?;
                let mut unpack = Unpack::new(&data.tree, into, made.write_bytes);
                let unpacked = client.run(KEPT_BYTES, &mut unpack).await;
                // Also of a partly unpacked tree, which has to be removed.
                made.tree_directories = unpack.into_directories();
                unpacked
            }
        })
    }

    fn check(&mut self, workload: Workload, data: &Data) -> io::Result<()> {
        self.with(async |client, made| match workload {
            Workload::SequentialWrite => made.check_file(client, data, false).await,
            Workload::RandomWrite => made.check_file(client, data, true).await,
            Workload::Create => data.compare_names(made.list(client).await?, true),
            Workload::Remove => data.compare_names(made.list(client).await?, false),
            Workload::Unpack => made.check_tree(client, data).await,
            _ => Ok(()),
        })
    }

    /// An object that cannot be removed does not stop the removal of the rest: after a failure some may be missing.
    fn end(&mut self, data: &Data) -> io::Result<()> {
        self.with(async |client, made| {
            let folder = made.folder()?.clone();
            let mut removed = Ok(());
            let mut remove = async |call: Call<'_>| {
                let done = client.call(call).await.map(drop);
                if removed.is_ok() {
                    removed = done;
                }
            };
            if made.file.is_some() {
                remove(Call::remove(&folder, FILE)).await;
            }
            for entry in data.tree.entries.iter().rev() {
                let Some(Some(parent)) = made.tree_directories.get(entry.parent) else {
                    continue;
                };
                remove(match entry.kind {
                    Kind::Directory(_) => Call::rmdir(parent, &entry.name),
                    Kind::File { .. } => Call::remove(parent, &entry.name),
                })
                .await;
            }
            if !made.tree_directories.is_empty() {
                remove(Call::rmdir(&folder, TREE)).await;
            }
            if let Some(root) = &made.root {
                remove(Call::rmdir(root, &made.folder_name)).await;
            }
            removed
        })
    }
}

impl Made {
    fn folder(&self) -> io::Result<&Handle> {
        let missing = || wrong("there is no folder".to_owned());
        self.folder.as_ref().ok_or_else(missing)
    }

    fn file(&self) -> io::Result<&Handle> {
        let missing = || wrong("there is no file".to_owned());
        self.file.as_ref().ok_or_else(missing)
    }

    fn names(&self, data: &Data) -> io::Result<&[Handle]> {
        match self.names.len() == data.names.len() {
            true => Ok(&self.names),
            false => Err(wrong("there are no files".to_owned())),
        }
    }

    /// The names in the folder, except that of the large file.
    async fn list(&self, client: &mut Client) -> io::Result<Vec<Vec<u8>>> {
        let mut names = client.list(self.folder()?).await?;
        names.retain(|name| name != FILE.as_bytes());
        Ok(names)
    }

    async fn check_file(&self, client: &mut Client, data: &Data, after: bool) -> io::Result<()> {
        let mut check = CheckFile {
            file: self.file()?,
            piece: self.read_bytes,
            issued: 0,
            data,
            after,
        };
        client.run(usize::MAX, &mut check).await
    }

    async fn check_tree(&self, client: &mut Client, data: &Data) -> io::Result<()> {
        for entry in &data.tree.entries {
            let Kind::File { text, .. } = &entry.kind else {
                continue;
            };
            let wanted = data.tree.bytes(text);
            let parent = self.tree_directories.get(entry.parent).cloned().flatten();
            let parent = parent.ok_or_else(|| wrong("a directory was not made".to_owned()))?;
            let file = client.lookup(&parent, &entry.name).await?;
            let reply = client.call(Call::getattr(&file)).await?;
            let mut found = Vec::new();
            while found.len() < wanted.len() {
                let count = self.read_bytes.min(wanted.len() - found.len());
                let read = client.read(&file, found.len() as u64, count as u32).await?;
                if read.is_empty() {
                    break;
                }
                found.extend_from_slice(&read);
            }
            if found != wanted || Results::of(&reply)?.size()? != wanted.len() as u64 {
                return Err(wrong(format!("{} is not what was written", entry.name)));
            }
        }
        Ok(())
    }
}

async fn make_directory(client: &mut Client, parent: &Handle, name: &str) -> io::Result<Handle> {
    let call = Call::make_directory(parent, name, 0o755);
    let reply = client.call(call).await?;
    Results::of(&reply)?.made()
}

/// Writes these pieces and commits them, unless the answers have promised stable storage already.
async fn write<'a>(
    client: &mut Client,
    file: &Handle,
    pieces: impl Iterator<Item = (u64, &'a [u8])>,
) -> io::Result<()> {
    let mut writes = Writes {
        file,
        pieces: pieces.enumerate(),
        lengths: Vec::new(),
        all_stable: true,
        verifier: None,
    };
    client.run(KEPT_BYTES, &mut writes).await?;
    let (all_stable, verifier) = (writes.all_stable, writes.verifier);
    if !all_stable {
        let reply = client.call(Call::commit(file)).await?;
        if Some(Results::of(&reply)?.committed()?) != verifier {
            return Err(wrong("the server has lost what was written".to_owned()));
        }
    }
    Ok(())
}

/// Unstable writes of one file.
struct Writes<'f, I> {
    file: &'f Handle,
    pieces: std::iter::Enumerate<I>,
    /// Lengths of the pieces that have been sent.
    lengths: Vec<usize>,
    all_stable: bool,
    verifier: Option<[u8; 8]>,
}

impl<'a, I: Iterator<Item = (u64, &'a [u8])>> Work<'a> for Writes<'_, I> {
    fn next(&mut self) -> Option<(u64, Call<'a>)> {
        let (number, (offset, bytes)) = self.pieces.next()?;
        self.lengths.push(bytes.len());
        Some((number as u64, Call::write(self.file, offset, bytes)))
    }

    fn answered(&mut self, number: u64, results: Results<'_>) -> io::Result<()> {
        let written = results.written()?;
        let wanted = self.lengths[number as usize];
        if written.count as usize != wanted {
            return Err(wrong(format!("{written:?} of {wanted} bytes")));
        }
        self.all_stable &= written.stable;
        if *self.verifier.get_or_insert(written.verifier) != written.verifier {
            return Err(wrong("the server has lost what was written".to_owned()));
        }
        Ok(())
    }
}

/// CREATE of each of the names.
struct Create<'a> {
    folder: &'a Handle,
    names: &'a [String],
    issued: usize,
    made: Vec<Option<Handle>>,
}

impl<'a> Work<'a> for Create<'a> {
    fn next(&mut self) -> Option<(u64, Call<'a>)> {
        let number = self.issued;
        let name = self.names.get(number)?;
        self.issued += 1;
        let call = Call::create_new(self.folder, name, 0o644);
        Some((number as u64, call))
    }

    fn answered(&mut self, number: u64, results: Results<'_>) -> io::Result<()> {
        self.made[number as usize] = Some(results.made()?);
        Ok(())
    }
}

/// Reads all of the large file, and compares it.
struct CheckFile<'a> {
    file: &'a Handle,
    piece: usize,
    issued: usize,
    data: &'a Data,
    after: bool,
}

impl<'a> Work<'a> for CheckFile<'a> {
    fn next(&mut self) -> Option<(u64, Call<'a>)> {
        let offset = self.issued * self.piece;
        if offset >= self.data.file.len() {
            return None;
        }
        self.issued += 1;
        let call = Call::read(self.file, offset as u64, self.piece as u32);
        Some((offset as u64, call))
    }

    fn answered(&mut self, offset: u64, results: Results<'_>) -> io::Result<()> {
        let (offset, bytes) = (offset as usize, results.read_data()?);
        let wanted = self.piece.min(self.data.file.len() - offset);
        if bytes.len() != wanted {
            let count = bytes.len();
            return Err(wrong(format!(
                "{count} bytes of {wanted} are read at {offset}"
            )));
        }
        self.data.compare(offset, bytes, self.after)
    }
}
