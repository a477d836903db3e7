//! Lines of the control socket: requests of a client and replies of a gateway.
//!
//! For every line: if it is read, writing, reading and writing again gives the same; and a reply can be shown.

use forebay::admin::fuzzing::{reply, request};

use crate::Target;

/// The target.
pub const TARGET: Target = Target {
    name: "control",
    run,
    seeds,
    max_bytes: 2048,
};

fn run(line: &[u8]) {
    if let Some(written) = request(line) {
        assert_eq!(request(&written).as_ref(), Some(&written), "a request");
    }
    if let Some((written, shown)) = reply(line) {
        let again = reply(&written).map(|(again, _)| again);
        assert_eq!(
            again.as_deref().map(String::from_utf8_lossy),
            Some(String::from_utf8_lossy(&written)),
            "a reply"
        );
        assert!(written.ends_with(b"\n") && !written[..written.len() - 1].contains(&b'\n'));
        drop(shown);
    }
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let status = r#"{"status":{"version":"0.1.0","uptime_seconds":12.5,"volume":"6f0c","store":"file:///b",
        "listen":"127.0.0.1:2049","epoch":3,"published_lsn":4096,"durable_lsn":8192,"log_end_lsn":8192,
        "unpublished_bytes":4096,"oldest_unpublished_age_seconds":0.25,"dirty_bytes":1,"memory_bytes":2,
        "memory_limit_bytes":3,"log_bytes":4,"log_limit_bytes":5,"log_error":null,
        "compression":{"level":4,"raw_bytes":5,"stored_bytes":3},"disk_cache":null,"checkpoint":6,"checkpoint_state":"uploading",
        "uploads_in_flight":7,"store_error":{"message":"503","for_seconds":1.5},"requests":{"GET":1,"PUT":2}}}"#;
    let gc = r#"{"gc":{"store":"file:///b","running":true,"packs_to_rewrite":3,"dead_bytes_to_free":4,
        "packs_rewritten":2,"bytes_copied":5,"packs_left_alone":1,"rate_bytes":6,"waits_for":"503"}}"#;
    vec![
        ("status", br#"{"command":"status"}"#.to_vec()),
        ("flush", br#"{"command":"flush"}"#.to_vec()),
        ("gc", br#"{"command":{"gc":"rewrite"}}"#.to_vec()),
        (
            "events",
            br#"{"command":{"events":{"after":3,"follow":true}}}"#.to_vec(),
        ),
        ("unknown", br#"{"command":"flush","now":true}"#.to_vec()),
        (
            "status-reply",
            status.replace("\n        ", "").into_bytes(),
        ),
        (
            "flush-reply",
            br#"{"flush":{"published_lsn":4096,"uploaded_bytes":100,"seconds":0.75}}"#.to_vec(),
        ),
        ("gc-reply", gc.replace("\n        ", "").into_bytes()),
        (
            "event-reply",
            br#"{"event":{"number":3,"unix_seconds":1790000000.25,"level":"warn","module":"forebay_nfs::server","message":"a\n","fields":{"client":"10.0.0.1"}}}"#.to_vec(),
        ),
        ("lost-reply", br#"{"lost":12}"#.to_vec()),
        (
            "error-reply",
            br#"{"error":"the bucket cannot be \u0022written\u0022"}"#.to_vec(),
        ),
    ]
}
