//! The credentials of a sealed volume: a passphrase or key file, read from a file of the configuration or typed; or
//! the use of a key service.
//!
//! Secrets never come from an argument or an environment variable, which other processes can see. They are wiped when
//! they are no longer needed. [`crate::local_users`] makes sure at the start that no core dump of the process is
//! written, and that other processes of the same user cannot read its memory.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::sync::Arc;

use forebay_fs::{Expected, Unlock};
use forebay_kms::{Kms, KmsOptions};
use forebay_seal::{KeyFile, Passphrase};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::config::{Config, Sealing};
use crate::secret_file::{open_private, unreadable};

/// The danger if other users can read the file.
const DANGER: &str = "could open the volume";

/// The purpose of a typed passphrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typed {
    /// To open an existing volume.
    Once,
    /// To open the volume from now on: a typo would lock everybody out.
    Twice,
}

/// The expected properties of the volume, and its credentials.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Whether it is sealed, and the credential that opens it then.
    pub expected: Expected,
    /// Whether the credential was typed, once: then no new volume may be made with it.
    pub typed_once: bool,
}

/// Reads the credentials according to the configuration; asks for the passphrase at the terminal if it names none.
///
/// # Errors
/// Why there are none, and the remedy, as a message to the user.
pub fn of(config: &Config, typed: Typed) -> Result<Credentials, String> {
    let not_typed = |expected| Credentials {
        expected,
        typed_once: false,
    };
    if config.encryption == Sealing::Off {
        return Ok(not_typed(Expected::NotSealed));
    }
    if let Some(path) = config.key_file.path() {
        let unlock = key_file("key_file", path)?;
        return Ok(not_typed(Expected::Sealed(unlock)));
    }
    if let Some(path) = config.passphrase_file.path() {
        let unlock = passphrase_file("passphrase_file", path)?;
        return Ok(not_typed(Expected::Sealed(unlock)));
    }
    if let Some(key) = &config.kms_key.0 {
        let unlock = kms(
            config,
            KmsOptions {
                key: key.clone(),
                region: config.kms_region.0.clone(),
                endpoint: config.kms_endpoint.0.clone(),
                ..KmsOptions::default()
            },
        )?;
        return Ok(not_typed(Expected::Sealed(unlock)));
    }
    let advice = "set passphrase_file, key_file or kms_key, or start this at a terminal to type the passphrase";
    let unlock = type_passphrase("Passphrase of the volume", typed, advice)?;
    Ok(Credentials {
        expected: Expected::Sealed(unlock),
        typed_once: typed == Typed::Once,
    })
}

/// A new passphrase: from this file, or typed twice.
///
/// # Errors
/// Why there is none, as a message to the user.
pub(crate) fn new_passphrase(file: Option<&Path>) -> Result<Arc<Unlock>, String> {
    match file {
        Some(path) => passphrase_file("--new-passphrase-file", path),
        None => {
            let advice = "name a file with --new-passphrase-file, or start this at a terminal";
            type_passphrase("New passphrase", Typed::Twice, advice)
        }
    }
}

/// The content of a key file. `setting` is the setting that names it.
///
/// # Errors
/// Why it cannot be used, and the remedy, as a message to the user.
pub(crate) fn key_file(setting: &str, path: &Path) -> Result<Arc<Unlock>, String> {
    let content = read(setting, path, KeyFile::MAX_LEN)?;
    let key_file = KeyFile::new(content)
        .map_err(|error| format!("{setting} = {}: {error}", path.display()))?;
    Ok(Arc::new(Unlock::KeyFile(key_file)))
}

/// The use of a key of AWS KMS, which is reached like the S3 server: through the same proxy, and with the same
/// authorities. No request is made yet.
///
/// # Errors
/// The part of the configuration for this that cannot be used, as a message to the user.
pub(crate) fn kms(config: &Config, options: KmsOptions) -> Result<Arc<Unlock>, String> {
    let options = KmsOptions {
        ca: config.s3_ca.path().map(Path::to_owned),
        proxy: config.s3_proxy.clone(),
        ..options
    };
    let kms = Kms::new(options).map_err(|error| error.to_string())?;
    Ok(Arc::new(Unlock::Service(Box::new(kms))))
}

fn passphrase_file(setting: &str, path: &Path) -> Result<Arc<Unlock>, String> {
    // Plus a line break of two bytes.
    let content = read(setting, path, Passphrase::MAX_LEN + 2)?;
    let passphrase =
        passphrase(content).map_err(|why| format!("{setting} = {}: {why}", path.display()))?;
    Ok(Arc::new(Unlock::Passphrase(passphrase)))
}

/// A passphrase from one line, without its line break.
fn passphrase(mut line: Zeroizing<Vec<u8>>) -> Result<Passphrase, String> {
    for end in [b'\n', b'\r'] {
        if line.last() == Some(&end) {
            line.pop();
        }
    }
    if line.contains(&b'\n') {
        return Err("it has several lines; a passphrase has one".to_owned());
    }
    // Moved and not copied; wiped in both cases.
    match String::from_utf8(std::mem::take(&mut *line)) {
        Ok(text) => Passphrase::new(text).map_err(|error| error.to_string()),
        Err(error) => {
            drop(Zeroizing::new(error.into_bytes()));
            Err("it is not UTF-8 text; for a file of random bytes set key_file".to_owned())
        }
    }
}

/// Reads a file that only its owner may read: at most one byte more than `most`, which shows that it is too long.
fn read(setting: &str, path: &Path, most: usize) -> Result<Zeroizing<Vec<u8>>, String> {
    let file = open_private(setting, path, DANGER)?;
    read_into_one_place(&file, most).map_err(|error| unreadable(setting, path, &error))
}

/// Never moves the bytes that it has read, which would leave copies behind.
fn read_into_one_place(mut file: &File, most: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut content = Zeroizing::new(vec![0; most + 1]);
    let mut len = 0;
    while len < content.len() {
        match file.read(&mut content[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    content.truncate(len);
    Ok(content)
}

/// Asks for it at the terminal. `advice` is for the case that there is none.
fn type_passphrase(what: &str, typed: Typed, advice: &str) -> Result<Arc<Unlock>, String> {
    if !io::stdin().is_terminal() {
        return Err(format!(
            "encryption = aes-256-gcm, but no passphrase, key file or KMS key is set: {advice}"
        ));
    }
    let failed =
        |error: io::Error| format!("cannot read the passphrase from the terminal: {error}");
    // Before the first prompt; otherwise a quickly typed secret would be shown.
    let silence = Silence::begin().map_err(failed)?;
    let first = silence.line(&format!("{what}: ")).map_err(failed)?;
    if typed == Typed::Twice {
        let second = silence.line("Repeat: ").map_err(failed)?;
        if *first != *second {
            return Err("the two passphrases differ; nothing was changed".to_owned());
        }
    }
    Ok(Arc::new(Unlock::Passphrase(passphrase(first)?)))
}

/// As long as it lives, typed text is not shown.
struct Silence(Termios);

impl Silence {
    fn begin() -> io::Result<Silence> {
        let before = tcgetattr(io::stdin())?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &quiet)?;
        Ok(Silence(before))
    }

    /// Reads one line, with its line break.
    fn line(&self, prompt: &str) -> io::Result<Zeroizing<Vec<u8>>> {
        let mut terminal = io::stderr().lock();
        write!(terminal, "{prompt}")?;
        terminal.flush()?;
        let mut line = Zeroizing::new(vec![0; Passphrase::MAX_LEN + 2]);
        // A terminal returns one line at a time; standard input's own buffer would keep a copy.
        let len = loop {
            match rustix::io::read(io::stdin(), &mut line[..]) {
                Err(rustix::io::Errno::INTR) => {}
                read => break read?,
            }
        };
        line.truncate(len);
        writeln!(terminal)?;
        Ok(line)
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        // It fails only if the terminal is closed.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn file(&self, content: &[u8], mode: u32) -> std::path::PathBuf {
            let path = self.0.path().join("secret");
            let _ = std::fs::remove_file(&path);
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        }

        fn passphrase(&self, content: &[u8]) -> Result<Arc<Unlock>, String> {
            passphrase_file("passphrase_file", &self.file(content, 0o600))
        }
    }

    fn folder() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    #[test]
    fn a_passphrase_is_one_line_of_text() {
        let folder = folder();
        for good in ["words", "words\n", "words\r\n", " many words ", "schlüssel"] {
            folder.passphrase(good.as_bytes()).unwrap();
        }
        let long = vec![b'x'; Passphrase::MAX_LEN + 100];
        for (bad, why) in [
            (&b""[..], "is empty"),
            (b"\n", "is empty"),
            (b"one\ntwo\n", "several lines"),
            (b"\xff\xfe", "not UTF-8 text"),
            (&long, "too long"),
        ] {
            let error = folder.passphrase(bad).unwrap_err();
            assert!(
                error.contains(why) && error.contains("passphrase_file = /"),
                "{error}"
            );
        }
        let most = vec![b'x'; Passphrase::MAX_LEN];
        folder.passphrase(&[&most[..], b"\r\n"].concat()).unwrap();
    }

    #[test]
    fn the_line_break_is_no_part_of_it() {
        let of = |line: &str| {
            let passphrase = passphrase(Zeroizing::new(line.into())).unwrap();
            let cost = forebay_seal::Argon2Cost {
                memory_kib: 8,
                passes: 1,
                lanes: 1,
            };
            let volume = forebay_types::VolumeId([1; 16]);
            let entropy = &forebay_seal::SystemEntropy;
            let mut ring = forebay_seal::KeyRing::create(volume, 1, entropy);
            ring.add_passphrase(&passphrase, cost, entropy).unwrap();
            forebay_seal::LockedRing::decode(&ring.encode().unwrap()).unwrap()
        };
        let volume = forebay_types::VolumeId([1; 16]);
        let ring = of("words\n");
        let opens = |text: &str| {
            let passphrase = Passphrase::new(text.into()).unwrap();
            let credential = forebay_seal::Credential::Passphrase(&passphrase);
            ring.unlock(volume, credential).is_ok()
        };
        assert!(opens("words"));
        assert!(!opens("words\n") && !opens("word"));
    }

    #[test]
    fn files_that_others_may_read_are_refused() {
        let folder = folder();
        for mode in [0o640, 0o604, 0o660, 0o644] {
            let error = key_file("key_file", &folder.file(&[1; 32], mode)).unwrap_err();
            assert!(
                error.contains("chmod 600") && error.contains("key_file"),
                "{error}"
            );
        }
        for mode in [0o600, 0o400] {
            key_file("key_file", &folder.file(&[1; 32], mode)).unwrap();
        }
        let error = key_file("key_file", &folder.file(&[1; 31], 0o600)).unwrap_err();
        assert!(error.contains("fewer than 32 bytes"), "{error}");
        let error = key_file("key_file", &folder.0.path().join("none")).unwrap_err();
        assert!(error.contains("put the file there"), "{error}");
    }
}
