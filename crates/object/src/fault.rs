//! Classes of errors, by what the caller can do about them.
//!
//! [`sort`](crate::sort) finds the class of an error; the tables of [`s3`](crate::s3) name one for each answer.

/// The problem of a request, which decides what can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no such object.
    NotFound,
    /// A create met an existing object.
    AlreadyExists,
    /// An update met another version than the expected one.
    Precondition,
    /// A conditional get found nothing new.
    NotModified,
    /// There is no such bucket.
    BucketMissing,
    /// No credentials were found, or their provider did not answer.
    NoCredentials,
    /// The server does not know the credentials, or they have expired.
    BadCredentials,
    /// The credentials, or the user that this process runs as, may not do this.
    Denied,
    /// The bucket is in another region.
    WrongRegion,
    /// The disk is full, or a quota is used up.
    Full,
    /// The file system is read-only.
    ReadOnly,
    /// The server refuses the request as it is, and would refuse it again.
    Refused,
    /// The server that answers is not an S3 server.
    NotS3,
    /// The clocks of this machine and of the server differ.
    Clock,
    /// The TLS certificate of the server is not trusted.
    Untrusted,
    /// The object is in an archive, from which it has to be restored first.
    Archived,
    /// The requested range begins behind the object's end.
    OutOfRange,
    /// The store cannot do this at all.
    Unsupported,
    /// The server cannot be reached, or did not answer in time.
    Unreachable,
    /// Anything else: the same request may succeed later.
    Transient,
}

impl Fault {
    /// Whether the same request may succeed later without any intervention.
    pub fn is_transient(self) -> bool {
        matches!(self, Fault::Unreachable | Fault::Transient)
    }

    /// Whether it is permanent for each request: it lasts until a person acts.
    pub fn is_lasting(self) -> bool {
        match self {
            Fault::BucketMissing
            | Fault::NoCredentials
            | Fault::BadCredentials
            | Fault::Denied
            | Fault::WrongRegion
            | Fault::Full
            | Fault::ReadOnly
            | Fault::Refused
            | Fault::NotS3
            | Fault::Clock
            | Fault::Untrusted => true,
            Fault::NotFound
            | Fault::AlreadyExists
            | Fault::Precondition
            | Fault::NotModified
            | Fault::OutOfRange
            | Fault::Unsupported
            | Fault::Archived
            | Fault::Unreachable
            | Fault::Transient => false,
        }
    }

    /// Whether it is a regular answer, from which the caller gets information.
    pub fn is_expected(self) -> bool {
        matches!(
            self,
            Fault::NotFound | Fault::AlreadyExists | Fault::Precondition | Fault::NotModified
        )
    }

    /// The remedy, as a text for people.
    pub fn way_out(self) -> &'static str {
        match self {
            Fault::NotFound => "the object is not there",
            Fault::AlreadyExists => "the object is there already",
            Fault::Precondition => "the object was changed by someone else",
            Fault::NotModified => "the object has not changed",
            Fault::BucketMissing => {
                "the bucket does not exist: create it, or correct its name or the endpoint"
            }
            Fault::NoCredentials => {
                "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
                 AWS_PROFILE"
            }
            Fault::BadCredentials => {
                "the server does not accept the credentials: check the access key, its secret and \
                 whether it has expired"
            }
            Fault::Denied => {
                "permission denied: allow reading, writing, listing and deleting below the \
                 volume's prefix or folder"
            }
            Fault::WrongRegion => "the bucket is in another region: set AWS_REGION to it",
            Fault::Full => "the disk is full: free some space",
            Fault::ReadOnly => {
                "the file system is read-only: mount it for writing; if it was writable before, its disk has failed: \
                 see the kernel's log"
            }
            Fault::Refused => "the server refuses the request",
            Fault::NotS3 => {
                "the answer does not come from an S3 server: correct the endpoint (AWS_ENDPOINT_URL)"
            }
            Fault::Clock => "set this machine's clock, or the server's",
            Fault::Untrusted => {
                "the server's certificate is not trusted: name its authority in s3_ca"
            }
            Fault::Archived => {
                "the object is in an archive class: have it restored, and remove the lifecycle rule that archives objects \
                 below the volume's prefix"
            }
            Fault::OutOfRange => "the object is shorter than it should be: it was damaged or cut",
            Fault::Unsupported => "the store cannot do this",
            Fault::Unreachable => {
                "the server cannot be reached: check the endpoint (AWS_ENDPOINT_URL), the network \
                 and whether the server runs"
            }
            Fault::Transient => "the store failed: try again, and look into its log",
        }
    }
}
