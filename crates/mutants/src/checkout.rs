//! A copy of the checkout, into which defects are put.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::project::MutantsError;

/// Paths whose changes do not count: they are not part of the program, and each run changes them.
const NOT_TRIED: [&str; 2] = [":(exclude)tests/mutants", ":(exclude)docs/mutants.md"];

/// The copy. Its path is always the same, so that one run can use the builds of another; only one run may use it at a
/// time.
#[derive(Debug)]
pub(crate) struct Checkout {
    /// Folder of the files.
    pub(crate) tree: PathBuf,
    /// Folder for the suites' builds.
    pub(crate) target: PathBuf,
    /// File with the output of the last suite.
    pub(crate) log: PathBuf,
    /// The commit, followed by `+` if the checkout has uncommitted changes, which the copy has as well.
    pub(crate) commit: String,
    lock: File,
}

impl Drop for Checkout {
    fn drop(&mut self) {
        // Closing the file would release the lock only with its last descriptor, which a starting child may have for a
        // moment.
        let _ = self.lock.unlock();
    }
}

impl Checkout {
    /// Copies the files of a checkout that git knows.
    pub(crate) fn copy(root: &Path, cache: &Path) -> Result<Checkout, MutantsError> {
        fs::create_dir_all(cache).map_err(MutantsError::io(cache))?;
        let lock = cache.join("lock");
        let lock = File::create(&lock).map_err(MutantsError::io(&lock))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(MutantsError::Busy(cache.to_owned())),
            Err(TryLockError::Error(error)) => {
                return Err(MutantsError::Io(cache.to_owned(), error));
            }
        }
        let tree = cache.join("tree");
        let head = git(root, &["rev-parse", "HEAD"])?;
        let mut commit = git(root, &["rev-parse", "--short=10", "HEAD"])?
            .trim()
            .to_owned();
        if update(root, &tree, head.trim()).is_err() {
            clone(root, &tree, head.trim())?;
        }

        let changes = cache.join("uncommitted.patch");
        let shown = changes.to_string_lossy();
        let output = format!("--output={shown}");
        git(
            root,
            &[
                &["diff", "--binary", &output, "HEAD", "--", "."][..],
                &NOT_TRIED,
            ]
            .concat(),
        )?;
        if fs::metadata(&changes).is_ok_and(|changes| changes.len() > 0) {
            git(&tree, &["apply", "--index", &shown])?;
            git(
                &tree,
                &[
                    "-c",
                    "user.name=mutants",
                    "-c",
                    "user.email=mutants@localhost",
                    "commit",
                    "--quiet",
                    "--message=as it is",
                ],
            )?;
            commit.push('+');
        }
        Ok(Checkout {
            tree,
            target: cache.join("target"),
            log: cache.join("log"),
            commit,
            lock,
        })
    }

    /// Removes everything that suites have left in the tree.
    pub(crate) fn clean(&self) -> Result<(), MutantsError> {
        git(&self.tree, &["checkout", "--quiet", "--", "."])?;
        git(&self.tree, &["clean", "--quiet", "--force", "-d"])?;
        Ok(())
    }
}

/// Brings an earlier copy to a commit. Files that are the same keep their times, so that cargo builds only what differs.
fn update(root: &Path, tree: &Path, commit: &str) -> Result<(), MutantsError> {
    if !tree.join(".git").exists() {
        // Git would take a folder above it for the copy.
        return Err(MutantsError::io(tree)(io::ErrorKind::NotFound.into()));
    }
    git(tree, &["fetch", "--quiet", &root.to_string_lossy(), "HEAD"])?;
    git(
        tree,
        &["checkout", "--quiet", "--force", "--detach", commit],
    )?;
    git(tree, &["clean", "--quiet", "--force", "-d", "-x"])?;
    Ok(())
}

/// Makes the copy at a commit, in place of anything that is there.
fn clone(root: &Path, tree: &Path, commit: &str) -> Result<(), MutantsError> {
    if tree.exists() {
        fs::remove_dir_all(tree).map_err(MutantsError::io(tree))?;
    }
    let (from, to) = (root.to_string_lossy(), tree.to_string_lossy());
    git(
        root,
        &["clone", "--quiet", "--shared", "--no-checkout", &from, &to],
    )?;
    git(tree, &["checkout", "--quiet", "--detach", commit])?;
    Ok(())
}

/// Runs git in a folder, and returns its output.
fn git(folder: &Path, arguments: &[&str]) -> Result<String, MutantsError> {
    let mut command = Command::new("git");
    command
        .arg("-C")
        .arg(folder)
        .args(arguments)
        .stdin(Stdio::null());
    let failed = |error| MutantsError::Program {
        command: format!("git {}", arguments.join(" ")),
        error,
    };
    let output = command
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(said.trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(folder: &Path) {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("a"), "committed\n").unwrap();
        let author = ["-c", "user.name=a", "-c", "user.email=a@localhost"];
        git(folder, &["init", "--quiet"]).unwrap();
        git(folder, &["add", "."]).unwrap();
        git(
            folder,
            &[&author[..], &["commit", "--quiet", "--message=a"]].concat(),
        )
        .unwrap();
    }

    #[test]
    fn the_copy_has_what_is_not_committed_and_is_cleaned_to_that() {
        let folder = tempfile::tempdir().unwrap();
        let (root, cache) = (folder.path().join("root"), folder.path().join("cache"));
        repository(&root);
        fs::create_dir_all(root.join("tests/mutants")).unwrap();
        fs::write(root.join("tests/mutants/results.tsv"), "new\n").unwrap();
        git(&root, &["add", "."]).unwrap();
        let plain = Checkout::copy(&root, &cache).unwrap();
        assert!(!plain.commit.ends_with('+'), "{}", plain.commit);
        drop(plain);
        fs::write(root.join("a"), "changed\n").unwrap();
        fs::write(root.join("b"), "new\n").unwrap();
        git(&root, &["add", "b"]).unwrap();

        let copy = Checkout::copy(&root, &cache).unwrap();
        assert!(copy.commit.ends_with('+'), "{}", copy.commit);
        fs::write(copy.tree.join("a"), "defect\n").unwrap();
        fs::write(copy.tree.join("left"), "by a suite\n").unwrap();
        copy.clean().unwrap();
        let read = |name: &str| fs::read_to_string(copy.tree.join(name)).unwrap();
        assert_eq!((read("a"), read("b")), ("changed\n".into(), "new\n".into()));
        assert!(!copy.tree.join("left").exists());
    }

    #[test]
    fn what_is_the_same_in_the_next_copy_keeps_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let (root, cache) = (folder.path().join("root"), folder.path().join("cache"));
        repository(&root);
        fs::write(root.join("b"), "first\n").unwrap();
        git(&root, &["add", "b"]).unwrap();
        let copy = Checkout::copy(&root, &cache).unwrap();
        let tree = copy.tree.clone();
        let time = |name: &str| fs::metadata(tree.join(name)).unwrap().modified().unwrap();
        let before = (time("a"), time("b"));
        drop(copy);
        // Longer than the steps in which files have times.
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(root.join("b"), "second\n").unwrap();
        drop(Checkout::copy(&root, &cache).unwrap());
        assert_eq!(time("a"), before.0);
        assert!(time("b") > before.1);
        assert_eq!(fs::read_to_string(tree.join("b")).unwrap(), "second\n");
        // A copy that an interrupted run has left broken is made again.
        fs::remove_dir_all(tree.join(".git")).unwrap();
        fs::write(tree.join("a"), "defect\n").unwrap();
        drop(Checkout::copy(&root, &cache).unwrap());
        assert_eq!(fs::read_to_string(tree.join("a")).unwrap(), "committed\n");
    }

    #[test]
    fn one_run_has_the_copy() {
        let folder = tempfile::tempdir().unwrap();
        let (root, cache) = (folder.path().join("root"), folder.path().join("cache"));
        repository(&root);
        let copy = Checkout::copy(&root, &cache).unwrap();
        let second = Checkout::copy(&root, &cache).unwrap_err().to_string();
        assert!(second.starts_with("another run is using "), "{second}");
        drop(copy);
        Checkout::copy(&root, &cache).unwrap();
    }

    #[test]
    fn what_git_says_against_it_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let error = git(folder.path(), &["rev-parse", "HEAD"])
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("git rev-parse HEAD: fatal: not a git repository"),
            "{error}"
        );
    }
}
