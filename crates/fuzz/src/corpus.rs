//! The inputs in the repository: `corpus/<target>/<name>`.
//!
//! Files named `seed-...` are made with the real encoders ([`write_seeds`]); `find-...` are inputs that libFuzzer found
//! to reach code which no other input reaches (`fuzz/run --adopt`), named by their content; `fixed-...` once made a
//! target fail, and are named by the error.

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
/// Errors of the file system.
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

/// Writes the seeds of all targets, in place of the existing ones.
///
/// # Errors
/// Errors of the file system.
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
