//! The rows of failures: requests without a usable answer.

use std::error::Error as StdError;
use std::io;

use rustls::{CertificateError, Error as TlsError};

use super::{Advice, Kind};
use crate::Fault;
use crate::chain::{causes, chain};

const fn row(
    code: &'static str,
    kind: Kind,
    fault: Fault,
    means: &'static str,
    advice: &'static str,
) -> Advice {
    Advice {
        code,
        status: 0,
        kind,
        fault,
        means,
        advice,
    }
}

const NO_CREDENTIALS: Advice = row(
    "no credentials",
    Kind::Credentials,
    Fault::NoCredentials,
    "no credentials were found",
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; where a machine or a container provides them, check that \
     its endpoint answers",
);
const NO_SUCH_HOST: Advice = row(
    "no such host",
    Kind::Again,
    Fault::Unreachable,
    "the server cannot be reached: its name has no address",
    "check the name in the endpoint (AWS_ENDPOINT_URL), the region, and DNS; where the bucket is part of the name, set \
     s3_path_style = \"on\"",
);
const REFUSED: Advice = row(
    "connection refused",
    Kind::Again,
    Fault::Unreachable,
    "the server cannot be reached: nothing listens at its address",
    "check whether the server runs, and the port in the endpoint (AWS_ENDPOINT_URL)",
);
const NO_ROUTE: Advice = row(
    "no route",
    Kind::Again,
    Fault::Unreachable,
    "the server cannot be reached: there is no route to its address",
    "check the network of this machine, and the endpoint (AWS_ENDPOINT_URL)",
);
const BROKEN: Advice = row(
    "connection broken",
    Kind::Again,
    Fault::Unreachable,
    "the server cannot be reached: the connection ended before the answer",
    "check the network, and the log of the server or of the proxy before it; https:// to a port without TLS ends like this as \
     well (AWS_ENDPOINT_URL)",
);
pub(in crate::s3) const SILENT: Advice = row(
    "no answer in time",
    Kind::Again,
    Fault::Unreachable,
    "the server cannot be reached: it did not answer in time",
    "check the endpoint (AWS_ENDPOINT_URL), the network, a firewall on the way, and whether the server runs",
);
const UNREACHABLE: Advice = row(
    "not reached",
    Kind::Again,
    Fault::Unreachable,
    "the server cannot be reached",
    "check the endpoint (AWS_ENDPOINT_URL), the network and whether the server runs",
);
const UNKNOWN_AUTHORITY: Advice = row(
    "TLS: unknown authority",
    Kind::Again,
    Fault::Untrusted,
    "no trusted authority has signed the server's certificate",
    "name the authority's certificate in s3_ca (a PEM file); a certificate that the server has signed itself is its own authority",
);
const AUTHORITY_AS_SERVER: Advice = row(
    "TLS: an authority as server",
    Kind::Again,
    Fault::Untrusted,
    "the server presents a certificate for authorities (CA:TRUE), as `openssl req -x509` makes them",
    "make the server's certificate with `-addext basicConstraints=critical,CA:FALSE`, or sign one with that authority; name \
     the file in s3_ca",
);
const EXPIRED: Advice = row(
    "TLS: expired",
    Kind::Again,
    Fault::Untrusted,
    "the server's certificate has expired",
    "renew the server's certificate, or set this machine's clock",
);
const NOT_YET: Advice = row(
    "TLS: not valid yet",
    Kind::Again,
    Fault::Untrusted,
    "the server's certificate is not valid yet",
    "set this machine's clock",
);
const OTHER_NAME: Advice = row(
    "TLS: other name",
    Kind::Again,
    Fault::Untrusted,
    "the server's certificate is for other names",
    "use one of its names in the endpoint (AWS_ENDPOINT_URL), or give the server a certificate for this one; where the bucket is \
     part of the name, set s3_path_style = \"on\"",
);
const BAD_CERTIFICATE: Advice = row(
    "TLS: bad certificate",
    Kind::Again,
    Fault::Untrusted,
    "the server's certificate cannot be used",
    "give the server another certificate: version 3, with its name as subjectAltName, and a signature that is not outdated",
);
const NO_TLS: Advice = row(
    "TLS: not supported",
    Kind::Again,
    Fault::Untrusted,
    "the server does not speak TLS",
    "write http:// in the endpoint (AWS_ENDPOINT_URL), or name the port that has TLS",
);
const TLS_FAILED: Advice = row(
    "TLS: no agreement",
    Kind::Again,
    Fault::Untrusted,
    "this program and the server could not agree on a TLS session",
    "the server has to speak TLS 1.2 or 1.3, and must not require client certificates; see its log",
);
const NO_S3: Advice = row(
    "not S3",
    Kind::Configuration,
    Fault::NotS3,
    "the answer does not come from an S3 server: it is a page, or cannot be read",
    "correct the endpoint (AWS_ENDPOINT_URL): it leads to something else, such as the server's web console, a proxy or a login page",
);
const BROKEN_ANSWER: Advice = row(
    "broken answer",
    Kind::Again,
    Fault::Transient,
    "the answer cannot be read",
    "if it persists, check the endpoint (AWS_ENDPOINT_URL), the network and the proxy",
);
const CANNOT_BE_SENT: Advice = row(
    "cannot be sent",
    Kind::Configuration,
    Fault::Refused,
    "the request cannot be built",
    "check the names and settings that are part of it: endpoint, region, bucket, prefix, and the settings that begin with s3_",
);

/// The failures that leave a request without an answer, or with one that cannot be understood.
pub static FAILURES: &[Advice] = &[
    NO_CREDENTIALS,
    NO_SUCH_HOST,
    REFUSED,
    NO_ROUTE,
    BROKEN,
    SILENT,
    UNREACHABLE,
    UNKNOWN_AUTHORITY,
    AUTHORITY_AS_SERVER,
    EXPIRED,
    NOT_YET,
    OTHER_NAME,
    BAD_CERTIFICATE,
    NO_TLS,
    TLS_FAILED,
    NO_S3,
    BROKEN_ANSWER,
    CANNOT_BE_SENT,
];

/// The stage at which a request failed, as far as the SDK reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::s3) enum Stage {
    /// There were no credentials to sign it with.
    Credentials,
    /// It could not be built.
    Building,
    /// It was not sent, or not answered.
    OnItsWay,
    /// The time limit was reached.
    TooLate,
    /// The answer could not be read; `is_s3` is whether an S3 server sent it.
    Reading { is_s3: bool },
}

/// The row of a failure.
pub(in crate::s3) fn failure(stage: Stage, error: &(dyn StdError + 'static)) -> &'static Advice {
    match stage {
        Stage::Credentials => &NO_CREDENTIALS,
        Stage::Building => &CANNOT_BE_SENT,
        Stage::Reading { is_s3: true } => &BROKEN_ANSWER,
        Stage::Reading { is_s3: false } => &NO_S3,
        Stage::OnItsWay => on_its_way(error),
        Stage::TooLate => &SILENT,
    }
}

fn on_its_way(error: &(dyn StdError + 'static)) -> &'static Advice {
    if let Some(tls) = causes(error).find_map(tls_error) {
        return of_tls(tls);
    }
    let text = chain(error);
    // The resolver's errors have no type of their own.
    if text.contains("dns error") || text.contains("failed to lookup address") {
        return &NO_SUCH_HOST;
    }
    let kinds = causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>());
    for kind in kinds.map(io::Error::kind) {
        match kind {
            io::ErrorKind::ConnectionRefused => return &REFUSED,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => return &NO_ROUTE,
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof => return &BROKEN,
            io::ErrorKind::TimedOut => return &SILENT,
            _ => {}
        }
    }
    // hyper's errors have no constructor here.
    match text.contains("connection closed") || text.contains("channel closed") {
        true => &BROKEN,
        false if text.contains("no answer within") || text.contains("stands still") => &SILENT,
        false => &UNREACHABLE,
    }
}

/// The TLS error within an I/O error, which does not report it as its source.
fn tls_error<'a>(cause: &'a (dyn StdError + 'static)) -> Option<&'a TlsError> {
    if let Some(tls) = cause.downcast_ref::<TlsError>() {
        return Some(tls);
    }
    let inner = cause.downcast_ref::<io::Error>()?.get_ref()?;
    tls_error(inner)
}

fn of_tls(error: &TlsError) -> &'static Advice {
    let TlsError::InvalidCertificate(why) = error else {
        return match error {
            TlsError::InvalidMessage(_) => &NO_TLS,
            _ => &TLS_FAILED,
        };
    };
    match why {
        // A bad signature comes from another authority with the same name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => &UNKNOWN_AUTHORITY,
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => &EXPIRED,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => &NOT_YET,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            &OTHER_NAME
        }
        // The verifier's own error, whose crate is no dependency here.
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => &AUTHORITY_AS_SERVER,
        _ => &BAD_CERTIFICATE,
    }
}
