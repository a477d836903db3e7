//! Denies other users of this machine access to the files and the memory of a gateway.
//!
//! * New files are for this user only, independent of the umask ([`close_process`]).
//! * No core dump is written, and `/proc` shows memory and environment only to root: they contain keys of S3, of TLS
//!   and of sealed volumes.
//! * The start closes existing entries of `data_dir`, and of a bucket in a folder, that were open to other users
//!   ([`close_folders`]). Folders are closed first, from the top down: after that no other user can replace the
//!   entries that are checked next.
//!
//! A path may be mistyped (`--data-dir /etc`), so only entries that a gateway creates are changed, and a folder that
//! other users may access and that contains anything else is refused.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

use crate::config::Config;

/// The names that a gateway creates in `data_dir`, beside the default bucket.
const OF_DATA_DIR: &[&str] = &[
    "control.lock",
    "control.sock",
    "state",
    "state.new",
    "published",
    "locks",
    "locks.new",
    "log",
    "cache",
    "bucket",
];

/// The names that a gateway creates in a bucket in a folder.
const OF_BUCKET: &[&str] = &[
    "forebay.volume",
    "forebay.keys",
    "packs",
    "meta",
    "probe",
    "update-lock#0",
];

/// The name that the system creates in the root of a file system.
const OF_SYSTEM: &str = "lost+found";

/// Permissions of everybody but the owner.
const OTHERS: u32 = 0o077;

/// Maximum depth of folders that are checked; a bucket has 4 levels.
const DEPTH: usize = 32;

/// Closes this process: from here on new files are for this user only, no core dump is written, wherever the system
/// would put it, and only root may read the memory of the process.
///
/// # Errors
/// If the system refuses it, as a message to the user.
pub fn close_process() -> Result<(), String> {
    rustix::process::umask(Mode::from_raw_mode(OTHERS));
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let failed = |error| format!("cannot switch core dumps off, which would hold keys: {error}");
    setrlimit(Resource::Core, none).map_err(failed)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed)
}

/// Creates `data_dir`, if it does not exist, and closes it, as well as the bucket if that is a folder with a volume.
/// Logs the entries that were too open.
///
/// # Errors
/// The entry that cannot be closed, and the remedy, as a message to the user.
pub fn close_folders(config: &Config) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    let bucket = config.store.folder();
    let data_dir = GuardedFolder {
        what: "data_dir",
        path: config.data_dir.clone(),
        names: OF_DATA_DIR,
        mark: "state",
        except: bucket.map(Path::to_owned),
        own,
    };
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&data_dir.path);
    made.map_err(|error| data_dir.failed(&data_dir.path, &error))?;
    data_dir.close()?.say(&data_dir.path);
    // A missing folder is created when the store is opened.
    let Some(path) = bucket.filter(|path| path.exists()) else {
        return Ok(());
    };
    let bucket = GuardedFolder {
        what: "the bucket",
        path: path.to_owned(),
        names: OF_BUCKET,
        mark: "forebay.volume",
        except: None,
        own,
    };
    // A folder without a volume is refused when it is opened, and must not be changed.
    if bucket.foreign().is_some() && !bucket.has_mark() {
        return Ok(());
    }
    match bucket.close_top()? {
        // No other user can reach the objects below, and there may be millions of them.
        None => bucket.close_in_background(),
        Some(mode) => {
            let mut closed = Closed::of_top(Some(mode));
            bucket.close_entries(&mut closed)?;
            closed.say(&bucket.path);
        }
    }
    Ok(())
}

/// The entries that were closed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Closed {
    /// The permissions of the folder, if other users had some.
    folder_mode: Option<u32>,
    /// Number of files and folders in it on which other users had permissions.
    entries: u64,
}

impl Closed {
    fn of_top(folder_mode: Option<u32>) -> Closed {
        Closed {
            folder_mode,
            entries: 0,
        }
    }

    fn say(&self, path: &Path) {
        let (path, entries) = (path.display(), self.entries);
        match self.folder_mode {
            Some(mode) => tracing::warn!(
                "other users of this machine could read {path} (mode {mode:04o}, {entries} files and folders in it); it is closed to them now (0700), but they may have read its content"
            ),
            None if entries > 0 => tracing::info!(
                "removed permissions of other users from {entries} files and folders in {path}; the folder itself was closed to other users"
            ),
            None => {}
        }
    }
}

/// A folder that is to be closed.
struct GuardedFolder {
    /// Its name in errors.
    what: &'static str,
    path: PathBuf,
    /// The names that a gateway creates there.
    names: &'static [&'static str],
    /// The name that shows that a gateway has used the folder.
    mark: &'static str,
    /// Not descended into: it is a place of its own.
    except: Option<PathBuf>,
    /// The required owner of all entries.
    own: u32,
}

impl GuardedFolder {
    /// Closes the folder, then the gateway's entries in it.
    fn close(&self) -> Result<Closed, String> {
        let mut closed = Closed::of_top(self.close_top()?);
        self.close_entries(&mut closed)?;
        Ok(closed)
    }

    /// Closes the folder itself. Returns its permissions if other users had some.
    fn close_top(&self) -> Result<Option<u32>, String> {
        let failed = |error| self.failed(&self.path, &error);
        let link = fs::symlink_metadata(&self.path).map_err(failed)?;
        self.check_owner(&self.path, &link)?;
        let folder = fs::metadata(&self.path).map_err(failed)?;
        if folder.uid() != self.own {
            return Err(self.of_another(&self.path, folder.uid()));
        }
        let mode = folder.mode() & 0o7777;
        if mode & OTHERS == 0 {
            return Ok(None);
        }
        if let Some(foreign) = self.foreign()
            && !self.has_mark()
        {
            return Err(format!(
                "{} = {path}: others may use this folder (mode {mode:04o}), and it holds an entry that is not of Forebay ({foreign}), so it is not closed: name an empty folder, or run `chmod 700 {path}` if it is the right one",
                self.what,
                path = self.path.display()
            ));
        }
        self.set(&self.path, mode)?;
        Ok(Some(mode))
    }

    fn close_entries(&self, closed: &mut Closed) -> Result<(), String> {
        let own = self.names.iter().map(|name| self.path.join(name));
        let mut own = own.filter(|path| self.except.as_ref() != Some(path));
        own.try_for_each(|path| self.close_entry(&path, 0, closed))
    }

    fn close_in_background(self) {
        let work = move || {
            let mut closed = Closed::of_top(None);
            match self.close_entries(&mut closed) {
                Ok(()) => closed.say(&self.path),
                Err(problem) => tracing::warn!("{problem}"),
            }
        };
        let thread = thread::Builder::new().name("closing".to_owned());
        if let Err(error) = thread.spawn(work) {
            tracing::warn!(
                "cannot start the thread that checks the permissions of the bucket's files: {error}"
            );
        }
    }

    /// Whether a gateway has used the folder.
    fn has_mark(&self) -> bool {
        self.path.join(self.mark).exists()
    }

    /// Closes a file, or a folder and everything below. Entries that no longer exist are skipped.
    fn close_entry(&self, path: &Path, depth: usize, closed: &mut Closed) -> Result<(), String> {
        let Some(link) =
            found(fs::symlink_metadata(path)).map_err(|error| self.failed(path, &error))?
        else {
            return Ok(());
        };
        self.check_owner(path, &link)?;
        let entry = match link.is_symlink() {
            false => link,
            // A link out of the folder was made by the operator, since no other user could: `log` on another disk.
            true if depth == 0 => {
                let entry = found(fs::metadata(path)).map_err(|error| self.failed(path, &error))?;
                let Some(entry) = entry else { return Ok(()) };
                self.check_owner(path, &entry)?;
                entry
            }
            true => return Ok(()),
        };
        // Only root can change the permissions of root's entries, and no other user can reach them here.
        if entry.uid() != self.own {
            return Ok(());
        }
        let mode = entry.mode() & 0o7777;
        if mode & OTHERS != 0 {
            self.set(path, mode)?;
            closed.entries += 1;
        }
        if !entry.is_dir() || depth >= DEPTH {
            return Ok(());
        }
        let entries = found(fs::read_dir(path)).map_err(|error| self.failed(path, &error))?;
        for entry in entries.into_iter().flatten() {
            let entry = entry.map_err(|error| self.failed(path, &error))?;
            self.close_entry(&entry.path(), depth + 1, closed)?;
        }
        Ok(())
    }

    /// An entry that gateways do not create, if there is one.
    fn foreign(&self) -> Option<String> {
        let is_known = |name: &str| {
            let is_place = self.except.as_ref() == Some(&self.path.join(name));
            // `object_store` uses this name for an upload under way.
            let is_begun = name.starts_with("forebay.volume#");
            self.names.contains(&name) || name == OF_SYSTEM || is_begun || is_place
        };
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.find(|name| !is_known(name))
    }

    /// Removes the permissions of other users.
    fn set(&self, path: &Path, mode: u32) -> Result<(), String> {
        let set = fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS));
        match set.and_then(|()| fs::metadata(path)) {
            Ok(after) if after.mode() & OTHERS == 0 => Ok(()),
            Ok(_) => Err(format!(
                "{} has rights for others that the file system does not take away: mount it with umask=077, or name a folder on another one",
                path.display()
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(self.failed(path, &error)),
        }
    }

    /// Refuses an entry that belongs neither to this user nor to root: its owner may read or replace it.
    fn check_owner(&self, path: &Path, entry: &Metadata) -> Result<(), String> {
        match entry.uid() {
            0 => Ok(()),
            uid if uid == self.own => Ok(()),
            uid => Err(self.of_another(path, uid)),
        }
    }

    fn of_another(&self, path: &Path, uid: u32) -> String {
        let (path, top, own) = (path.display(), self.path.display(), self.own);
        format!(
            "{path} belongs to user {uid}, and this gateway runs as user {own}: run it as the owner, or change the owner of everything in {what} (`chown -R {own} {top}`), after you have checked its content",
            what = self.what,
        )
    }

    fn failed(&self, path: &Path, error: &io::Error) -> String {
        format!(
            "cannot close {} ({}) to other users of this machine: {error}; check that the folder exists and belongs to the user that runs the gateway",
            path.display(),
            self.what
        )
    }
}

/// The result, or `None` if there is no such entry.
fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    fn own() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn place(root: &TempDir) -> GuardedFolder {
        GuardedFolder {
            what: "data_dir",
            path: root.path().join("data"),
            names: OF_DATA_DIR,
            mark: "state",
            except: None,
            own: own(),
        }
    }

    fn folder(path: &Path, mode: u32) {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn file(path: &Path, mode: u32) {
        fs::write(path, "text").unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn everything_that_a_gateway_made_is_closed() {
        let root = TempDir::new().unwrap();
        let place = place(&root);
        folder(&place.path, 0o777);
        folder(&place.path.join("log"), 0o755);
        file(&place.path.join("log/a.segment"), 0o644);
        file(&place.path.join("control.lock"), 0o666);
        folder(&place.path.join("lost+found"), 0o755);
        let closed = place.close().unwrap();
        assert_eq!(closed.folder_mode, Some(0o777));
        assert_eq!(closed.entries, 3);
        for (name, expected) in [
            ("", 0o700),
            ("log", 0o700),
            ("log/a.segment", 0o600),
            ("control.lock", 0o600),
            ("lost+found", 0o755),
        ] {
            assert_eq!(mode(&place.path.join(name)), expected, "{name}");
        }
        assert_eq!(place.close().unwrap(), Closed::default());
    }

    #[test]
    fn a_folder_of_others_things_is_refused_and_not_changed() {
        let root = TempDir::new().unwrap();
        let place = place(&root);
        folder(&place.path, 0o755);
        file(&place.path.join("hosts"), 0o644);
        let refusal = place.close().unwrap_err();
        assert!(
            refusal.contains("(hosts)") && refusal.contains("chmod 700"),
            "{refusal}"
        );
        assert_eq!(mode(&place.path), 0o755);
        // Once closed by its owner, a folder is accepted; and so is one that a gateway has used.
        file(&place.path.join("state"), 0o644);
        place.close().unwrap();
        assert_eq!(mode(&place.path), 0o700);
        assert_eq!(mode(&place.path.join("state")), 0o600);
        assert_eq!(mode(&place.path.join("hosts")), 0o644);
    }

    #[test]
    fn what_belongs_to_another_user_is_refused() {
        let root = TempDir::new().unwrap();
        let mut place = place(&root);
        folder(&place.path, 0o700);
        if own() == 0 {
            // Root's files are accepted by everybody.
            std::os::unix::fs::chown(&place.path, Some(65534), None).unwrap();
        }
        place.own += 1;
        let refusal = place.close().unwrap_err();
        assert!(
            refusal.contains("belongs to user") && refusal.contains("chown -R"),
            "{refusal}"
        );
    }

    #[test]
    #[ignore = "needs root, to make files of another user"]
    fn as_root_what_another_user_has_planted_is_refused() {
        let root = TempDir::new().unwrap();
        let place = place(&root);
        let secret = root.path().join("secret");
        file(&secret, 0o644);
        for name in ["log", "control.lock", "published"] {
            folder(&place.path, 0o777);
            let planted = place.path.join(name);
            symlink(&secret, &planted).unwrap();
            std::os::unix::fs::lchown(&planted, Some(65534), Some(65534)).unwrap();
            let refusal = place.close().unwrap_err();
            assert!(refusal.contains("belongs to user 65534"), "{refusal}");
            assert_eq!(mode(&secret), 0o644);
            fs::remove_dir_all(&place.path).unwrap();
        }
        // The folder itself.
        folder(&root.path().join("real"), 0o755);
        symlink(root.path().join("real"), &place.path).unwrap();
        std::os::unix::fs::lchown(&place.path, Some(65534), Some(65534)).unwrap();
        place.close().unwrap_err();
        assert_eq!(mode(&root.path().join("real")), 0o755);
    }

    #[test]
    fn links_of_the_operator_are_followed_once() {
        let root = TempDir::new().unwrap();
        let place = place(&root);
        folder(&place.path, 0o700);
        let (disk, outside) = (root.path().join("disk"), root.path().join("outside"));
        folder(&disk, 0o755);
        file(&disk.join("a.segment"), 0o644);
        file(&outside, 0o644);
        symlink(&disk, place.path.join("log")).unwrap();
        symlink(&outside, disk.join("link")).unwrap();
        assert_eq!(place.close().unwrap().entries, 2);
        assert_eq!(mode(&disk), 0o700);
        assert_eq!(mode(&disk.join("a.segment")), 0o600);
        assert_eq!(mode(&outside), 0o644);
    }
}
