//! Settings that are one word of a few.

use super::{Value, Written};

/// Makes an enum whose variants are the words that a setting may be. After a word may follow shorter ones
/// that are read as well.
macro_rules! choice {
    (
        $(#[$attribute:meta])*
        $name:ident:
        $($(#[$documentation:meta])+ $variant:ident = $word:literal $(or $short:literal)*,)+
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$documentation])+ $variant,)+
        }

        impl $name {
            /// The word for it.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }
        }

        impl Value for $name {
            const KIND: &'static str = "word";
            const EXAMPLE: &'static str = "a word";
            const CHOICES: &'static [&'static str] = &[$($word),+];

            fn read(text: &str) -> Result<Self, String> {
                match text.trim() {
                    $($word $(| $short)* => Ok($name::$variant),)+
                    _ => Err("not one of the words".to_owned()),
                }
            }

            fn write(&self) -> Written {
                Written::Text(self.word().to_owned())
            }
        }
    };
}

choice! {
    /// Where writes go before they are in the bucket.
    LogMode:
    /// To a log on the local disk.
    Disk = "disk",
    /// To memory alone.
    None = "none",
}

choice! {
    /// How a start treats a volume that another gateway holds.
    Takeover:
    /// It fails.
    Refuse = "refuse",
    /// It takes the volume.
    Allow = "allow",
}

choice! {
    /// What answers that promise stable storage wait for.
    CommitMode:
    /// The local disk.
    Disk = "disk",
    /// The bucket.
    Bucket = "bucket",
    /// The log's memory.
    Async = "async",
}

choice! {
    /// Whether file data is compressed.
    Compression:
    /// Where it pays.
    Auto = "auto",
    /// Never.
    Off = "off",
}

choice! {
    /// Whether content that the volume already holds is uploaded again.
    Dedup:
    /// It is.
    Off = "off",
    /// It is not.
    Full = "full",
    /// It is not, where it is cheap to find.
    Fast = "fast",
}

choice! {
    /// Whether a volume is sealed.
    Sealing:
    /// It is not.
    Off = "off",
    /// With this cipher.
    Aes256Gcm = "aes-256-gcm",
}

choice! {
    /// What an upload to S3 carries so that the server can verify it.
    Checksum:
    /// A CRC32.
    Crc32 = "crc32",
    /// An MD5.
    Md5 = "md5",
    /// Nothing.
    Off = "off",
}

choice! {
    /// Whether archived objects are restored when they are to be read.
    Restore:
    /// They are not.
    Off = "off",
    /// In minutes.
    Expedited = "expedited",
    /// In hours.
    Standard = "standard",
    /// In half a day or two.
    Bulk = "bulk",
}

choice! {
    /// How an S3 server is asked to encrypt.
    Encryption:
    /// As the bucket says.
    None = "none",
    /// With keys of the server.
    Aes256 = "AES256",
    /// With a key of its key management.
    Kms = "aws:kms",
}

choice! {
    /// Whose identity is replaced by that of the anonymous user.
    Squash:
    /// Root's, except that of clients on this machine.
    Auto = "auto",
    /// Nobody's.
    None = "no_root_squash" or "none",
    /// Root's.
    Root = "root_squash" or "root",
    /// Everybody's.
    All = "all_squash" or "all",
}

choice! {
    /// Whether clients may change anything.
    Access:
    /// They may.
    ReadWrite = "rw",
    /// They may not.
    ReadOnly = "ro",
}

choice! {
    /// From which ports clients may connect.
    SourcePort:
    /// From those below 1024.
    Secure = "secure",
    /// From all.
    Insecure = "insecure",
}

choice! {
    /// Something that is done or not.
    Switch:
    /// Done.
    On = "on",
    /// Not done.
    Off = "off",
}

impl Switch {
    /// Whether it is on.
    pub fn is_on(self) -> bool {
        self == Switch::On
    }
}

choice! {
    /// Something that is done, not done, or decided by the circumstances.
    Auto:
    /// By the circumstances.
    Auto = "auto",
    /// Done.
    On = "on",
    /// Not done.
    Off = "off",
}

impl Auto {
    /// Whether it is done; nothing where the circumstances decide.
    pub fn decided(self) -> Option<bool> {
        match self {
            Auto::Auto => None,
            Auto::On => Some(true),
            Auto::Off => Some(false),
        }
    }
}

choice! {
    /// Which messages are written.
    LogLevel:
    /// What failed.
    Error = "error",
    /// And what may need attention.
    Warn = "warn",
    /// And what an operator wants to know.
    Info = "info",
    /// And what a developer wants to know.
    Debug = "debug",
    /// Everything.
    Trace = "trace",
}
