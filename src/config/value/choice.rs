//! Settings with one word of a few as value.

use super::{Value, Written};

/// Defines an enum whose variants are the words that a setting may have. A word may be followed by short forms that
/// are accepted as well.
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
    /// The commit mode: where data must be before a reply that promises stable storage.
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
    /// Whether content that the volume already has is uploaded again.
    Dedup:
    /// Always.
    Off = "off",
    /// Never.
    Full = "full",
    /// Not if the earlier copy is cheap to find.
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
    /// The checksum of an upload to S3, by which the server can verify it.
    Checksum:
    /// A CRC32.
    Crc32 = "crc32",
    /// An MD5.
    Md5 = "md5",
    /// Nothing.
    Off = "off",
}

choice! {
    /// Whether archived objects are restored when they are read.
    Restore:
    /// Not restored.
    Off = "off",
    /// In minutes.
    Expedited = "expedited",
    /// In hours.
    Standard = "standard",
    /// In half a day or two.
    Bulk = "bulk",
}

choice! {
    /// The encryption that is requested from an S3 server.
    Encryption:
    /// According to the bucket's configuration.
    None = "none",
    /// With keys of the server.
    Aes256 = "AES256",
    /// With a key of the server's key management.
    Kms = "aws:kms",
}

choice! {
    /// The callers whose identity is replaced by that of the anonymous user.
    Squash:
    /// Root, except root of clients on this machine.
    Auto = "auto",
    /// No callers.
    None = "no_root_squash" or "none",
    /// Root.
    Root = "root_squash" or "root",
    /// All callers.
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
    /// The ports from which clients may connect.
    SourcePort:
    /// Only ports below 1024.
    Secure = "secure",
    /// All ports.
    Insecure = "insecure",
}

choice! {
    /// How clients see a directory that the file system does not have: `.snapshot` or `.trash`.
    VirtualDirectory:
    /// By its name, which no listing has.
    Hidden = "hidden",
    /// The same, and the directory of the export lists it.
    Visible = "visible",
    /// Not at all.
    Off = "off",
}

choice! {
    /// A feature that is on or off.
    Switch:
    /// On.
    On = "on",
    /// Off.
    Off = "off",
}

impl Switch {
    /// Whether it is on.
    pub fn is_on(self) -> bool {
        self == Switch::On
    }
}

choice! {
    /// A feature that is on, off, or decided by the circumstances.
    Auto:
    /// Decided by the circumstances.
    Auto = "auto",
    /// On.
    On = "on",
    /// Off.
    Off = "off",
}

impl Auto {
    /// Whether it is on; `None` if the circumstances decide.
    pub fn decided(self) -> Option<bool> {
        match self {
            Auto::Auto => None,
            Auto::On => Some(true),
            Auto::Off => Some(false),
        }
    }
}

choice! {
    /// The messages that are logged.
    LogLevel:
    /// Failures.
    Error = "error",
    /// Also messages that may need attention.
    Warn = "warn",
    /// Also messages for operators.
    Info = "info",
    /// Also messages for developers.
    Debug = "debug",
    /// All messages.
    Trace = "trace",
}

choice! {
    /// The form of messages.
    LogFormat:
    /// For people.
    Text = "text",
    /// For programs.
    Json = "json",
}
