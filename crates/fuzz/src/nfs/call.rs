//! Encodes calls (RFC 5531, RFC 1813) by hand, because the engine only has a decoder for them.

/// Appends an unsigned integer.
pub(crate) fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend(number.to_be_bytes());
}

/// Appends an unsigned hyper integer.
pub(crate) fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend(number.to_be_bytes());
}

/// Appends opaque data of variable length, or a string.
pub(crate) fn put_opaque(out: &mut Vec<u8>, data: &[u8]) {
    put_u32(out, data.len() as u32);
    out.extend(data);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Appends a `sattr3` that sets nothing.
pub(crate) fn put_no_attributes(out: &mut Vec<u8>) {
    out.extend([0; 24]);
}

/// The caller's credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// AUTH_NONE.
    Nobody,
    /// AUTH_SYS, user and group 0.
    Root,
    /// AUTH_SYS, user 1000, group 100, and two more groups.
    User,
}

/// Appends the credential and the empty verifier of a call.
fn put_caller(out: &mut Vec<u8>, caller: Caller) {
    let (id, groups): (u32, &[u32]) = match caller {
        Caller::Nobody => return out.extend([0; 16]),
        Caller::Root => (0, &[]),
        Caller::User => (1000, &[27, 30]),
    };
    let mut body = Vec::new();
    put_u32(&mut body, 0);
    put_opaque(&mut body, b"box");
    put_u32(&mut body, id);
    put_u32(&mut body, id / 10);
    put_u32(&mut body, groups.len() as u32);
    groups.iter().for_each(|group| put_u32(&mut body, *group));
    put_u32(out, 1);
    put_opaque(out, &body);
    out.extend([0; 8]);
}

/// Encodes a call, without record mark.
pub(crate) fn message(
    xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    caller: Caller,
    arguments: &[u8],
) -> Vec<u8> {
    let mut out = Vec::new();
    for number in [xid, 0, 2, program, version, procedure] {
        put_u32(&mut out, number);
    }
    put_caller(&mut out, caller);
    out.extend(arguments);
    out
}
