//! The inputs in the repository: `corpus/<target>/<name>`.
//!
//! Files named `seed-...` are made with the real encoders ([`write_seeds`]); `find-...` are inputs that libFuzzer found
//! to reach code which no other does, named by their content; `fixed-...` made a target fail once, and are named by what
//! was wrong.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::{TARGETS, Target};

/// The folder of a target's inputs.
pub fn folder(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target.name)
}

/// All inputs of a target: file name and content, in the order of their names.
///
/// # Errors
/// What the file system says.
pub fn load(target: &Target) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(folder(target))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        inputs.push((name, fs::read(entry.path())?));
    }
    inputs.sort();
    Ok(inputs)
}

/// The file name of a seed.
pub fn seed_name(name: &str) -> String {
    format!("seed-{name}")
}

/// Writes the seeds of all targets in the place of those that are there.
///
/// # Errors
/// What the file system says.
pub fn write_seeds() -> io::Result<()> {
    for target in TARGETS {
        let folder = folder(target);
        fs::create_dir_all(&folder)?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("seed-") {
                fs::remove_file(entry.path())?;
            }
        }
        for (name, bytes) in (target.seeds)() {
            fs::write(folder.join(seed_name(name)), bytes)?;
        }
    }
    Ok(())
}

/// Takes the inputs of a folder that libFuzzer has filled into the corpus, the shortest first, until those that were
/// found have `budget` bytes together. Gives how many there are then.
///
/// # Errors
/// What the file system says.
pub fn adopt(target: &Target, from: &Path, budget: usize) -> io::Result<usize> {
    let folder = folder(target);
    let mut known: Vec<Vec<u8>> = Vec::new();
    for (name, bytes) in load(target)? {
        if name.starts_with("find-") {
            fs::remove_file(folder.join(name))?;
        } else {
            known.push(bytes);
        }
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(from)? {
        let bytes = fs::read(entry?.path())?;
        if !known.contains(&bytes) {
            found.push(bytes);
        }
    }
    found.sort_by(|one, other| (one.len(), one).cmp(&(other.len(), other)));
    let mut spent = 0;
    let mut adopted = 0;
    for bytes in found {
        spent += bytes.len();
        if spent > budget {
            break;
        }
        let name = format!("find-{}", &blake3::hash(&bytes).to_hex()[..12]);
        fs::write(folder.join(name), bytes)?;
        adopted += 1;
    }
    Ok(adopted)
}
