//! The certificate that the server shows, and PEM texts that cannot be used.

use forebay_nfs::{Tls, TlsError};

use crate::Protected;
use crate::authority::Authority;
use crate::client::{Manner, SERVER, probe};
use crate::common::*;

#[test]
fn a_replaced_identity_counts_for_new_connections_and_leaves_others_alone() {
    let at = Protected::new();
    let mut before = Manner::trusting(&at.authority).connect(&at.server).unwrap();
    let other = Authority::new("others");
    let replaced = other.issue(SERVER).tls(None).unwrap();
    at.server.tls.replace(Some(replaced));
    assert!(Manner::trusting(&at.authority).connect(&at.server).is_err());
    let mut after = Manner::trusting(&other).connect(&at.server).unwrap();
    assert!(before.is_served() && after.is_served());
    // No TLS is possible as well.
    at.server.tls.replace(None);
    let mut plain = at.server.client();
    let probe = probe(plain.xid, NFS, 3, 0);
    plain.send_record(&probe);
    assert_eq!(plain.receive().unwrap()[4..], crate::BAD_CREDENTIAL);
    assert!(before.is_served() && after.is_served());
}

#[test]
fn clients_may_leave_alpn_out_but_not_ask_for_something_else() {
    let at = Protected::new();
    let manner = |alpn| Manner {
        alpn,
        ..Manner::trusting(&at.authority)
    };
    let mut without = manner(&[]).connect(&at.server).unwrap();
    assert!(without.is_served());
    assert!(manner(&[b"h2"]).connect(&at.server).is_err());
    let mut both = manner(&[b"h2", b"sunrpc"]).connect(&at.server).unwrap();
    assert!(both.is_served());
}

#[test]
fn texts_that_make_no_identity_are_refused_with_what_is_wrong() {
    let authority = Authority::new("servers");
    let (one, other) = (authority.issue(SERVER), authority.issue(SERVER));
    let made = |certificate: &str, key: &str, clients: Option<&str>| {
        let clients = clients.map(str::as_bytes);
        Tls::from_pem(certificate.as_bytes(), key.as_bytes(), clients).map(|_| ())
    };
    let (certificate, key) = (&one.certificate[..], &one.key[..]);
    assert_eq!(made(certificate, key, Some(&authority.pem)), Ok(()));
    let says = |made: Result<(), TlsError>, kind: fn(String) -> TlsError, words: &str| {
        let error = made.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(words), "{text}");
        assert_eq!(error, kind(text));
    };
    says(
        made("", key, None),
        TlsError::Certificate,
        "no certificate in it",
    );
    says(
        made(key, key, None),
        TlsError::Certificate,
        "no certificate in it",
    );
    let empty = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    says(
        made(empty, key, None),
        TlsError::Certificate,
        "cannot be used",
    );
    says(
        made(certificate, certificate, None),
        TlsError::Key,
        "no private key in it",
    );
    let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    says(
        made(certificate, &encrypted, None),
        TlsError::Key,
        "without one",
    );
    says(
        made(certificate, &other.key, None),
        TlsError::Key,
        "does not belong to the certificate",
    );
    says(
        made(certificate, key, Some("")),
        TlsError::ClientAuthority,
        "no certificate in it",
    );
    says(
        made(certificate, key, Some(empty)),
        TlsError::ClientAuthority,
        "number 1",
    );
    // The error message must not show any part of a key that cannot be read.
    let broken = key.replace("MI", "M!");
    let error = made(certificate, &broken, None).unwrap_err();
    let shown = key.lines().any(|line| error.to_string().contains(line));
    assert!(!shown, "{error}");
}
