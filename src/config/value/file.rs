//! Optional files.

use std::path::{Path, PathBuf};

use super::{Value, Written};

/// The path of a file, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaybeFile(pub Option<PathBuf>);

impl MaybeFile {
    /// The path, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.0.as_deref()
    }
}

/// A path is made absolute like that of a folder. A file called `none` is written `./none`.
impl Value for MaybeFile {
    const KIND: &'static str = "path";
    const EXAMPLE: &'static str = "the path of a file, or none";

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(MaybeFile(None)),
            "" => Err("an empty path names nothing".to_owned()),
            path => PathBuf::read(path).map(|path| MaybeFile(Some(path))),
        }
    }

    fn write(&self) -> Written {
        match &self.0 {
            None => Written::Text("none".to_owned()),
            Some(path) => path.write(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_no_file_and_a_file_of_that_name_can_be_told() {
        assert_eq!(MaybeFile::read("none").unwrap().path(), None);
        let named = MaybeFile::read("/etc/none").unwrap();
        assert_eq!(named.path(), Some(Path::new("/etc/none")));
        assert!(MaybeFile::read("./none").unwrap().path().is_some());
        assert!(MaybeFile::read("").is_err());
        assert!(MaybeFile::read("~/key.pem").unwrap_err().contains('~'));
    }
}
