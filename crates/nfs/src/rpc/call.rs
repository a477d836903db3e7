//! Decodes the header of a call.

use forebay_vfs::{ClientId, Credentials, Groups};

use super::{
    AUTH_NONE, AUTH_SYS, AUTH_TLS, CALL, MAX_AUTH_BYTES, MAX_GROUPS, MAX_MACHINE_NAME, RPC_VERSION,
};
use crate::xdr::{Malformed, Reader};

/// A call: program, procedure, caller, and its arguments, not decoded yet.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// Transaction id, for the reply.
    pub xid: u32,
    /// Program number.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure of the program.
    pub procedure: u32,
    /// The caller, as the call claims.
    pub credential: Credential,
    /// The arguments.
    pub arguments: Reader<'a>,
}

/// The caller. AUTH_SYS is a claim without proof: exports trust it because of the client's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS.
    Sys(Credentials),
    /// AUTH_TLS: not a caller yet; the client asks for TLS (RFC 9289, section 4.1).
    Tls,
}

impl Credential {
    /// Sets the client of the credential, if that has one.
    pub(crate) fn set_client(&mut self, client: ClientId) {
        if let Credential::Sys(caller) = self {
            caller.client = client;
        }
    }
}

/// Why a message is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotServed {
    /// It is not an RPC call: the peer speaks another protocol, and no answer is possible.
    NotACall,
    /// It is answered with a denial.
    Denied {
        /// Transaction id of the call.
        xid: u32,
        /// The reason.
        denial: Denial,
    },
}

/// Why a call is denied (`reject_stat` and `auth_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// Not RPC version 2.
    RpcMismatch,
    /// The credential cannot be decoded, exceeds its limits, or asks for TLS where TLS is not available
    /// (AUTH_BADCRED).
    BadCredential,
    /// A flavor of credentials that this server does not accept (AUTH_REJECTEDCRED).
    RejectedCredential,
    /// The verifier cannot be decoded (AUTH_BADVERF).
    BadVerifier,
    /// No export names the address or port of the client, or the export requires another flavor of
    /// credentials or a connection that is better protected (AUTH_TOOWEAK).
    TooWeak,
}

impl<'a> Call<'a> {
    /// Decodes the header of a record.
    pub fn decode(record: &'a [u8]) -> Result<Call<'a>, NotServed> {
        let mut reader = Reader::new(record);
        let xid = reader.u32().map_err(|Malformed| NotServed::NotACall)?;
        if reader.u32() != Ok(CALL) {
            return Err(NotServed::NotACall);
        }
        let denied = |denial| NotServed::Denied { xid, denial };
        let version = reader.u32().map_err(|Malformed| NotServed::NotACall)?;
        if version != RPC_VERSION {
            return Err(denied(Denial::RpcMismatch));
        }
        let [program, version, procedure] =
            numbers(&mut reader).map_err(|Malformed| NotServed::NotACall)?;
        let credential = credential(&mut reader).map_err(denied)?;
        let is_none = verifier(&mut reader).map_err(|Malformed| denied(Denial::BadVerifier))?;
        if credential == Credential::Tls && !is_none {
            return Err(denied(Denial::BadVerifier));
        }
        Ok(Call {
            xid,
            program,
            version,
            procedure,
            credential,
            arguments: reader,
        })
    }
}

/// Program and procedure of a record, if it is long enough. Nothing else of it is decoded.
pub(crate) fn wanted(record: &[u8]) -> Option<(u32, u32)> {
    let mut reader = Reader::new(record);
    // Transaction id, CALL, version of RPC.
    reader.array::<12>().ok()?;
    let [program, _, procedure] = numbers(&mut reader).ok()?;
    Some((program, procedure))
}

fn numbers(reader: &mut Reader<'_>) -> Result<[u32; 3], Malformed> {
    Ok([reader.u32()?, reader.u32()?, reader.u32()?])
}

fn credential(reader: &mut Reader<'_>) -> Result<Credential, Denial> {
    let bad = |Malformed| Denial::BadCredential;
    let flavor = reader.u32().map_err(bad)?;
    let body = reader.opaque(MAX_AUTH_BYTES).map_err(bad)?;
    match flavor {
        AUTH_NONE => Ok(Credential::None),
        AUTH_SYS => auth_sys(Reader::new(body))
            .map(Credential::Sys)
            .map_err(bad),
        AUTH_TLS if body.is_empty() => Ok(Credential::Tls),
        AUTH_TLS => Err(Denial::BadCredential),
        _ => Err(Denial::RejectedCredential),
    }
}

/// `authsys_parms`: stamp, machine name, uid, gid, groups.
fn auth_sys(mut reader: Reader<'_>) -> Result<Credentials, Malformed> {
    reader.u32()?;
    reader.opaque(MAX_MACHINE_NAME)?;
    let uid = reader.u32()?;
    let gid = reader.u32()?;
    let count = reader.u32()? as usize;
    if count > MAX_GROUPS {
        return Err(Malformed);
    }
    let mut groups = Groups::with_capacity(count);
    for _ in 0..count {
        groups.push(reader.u32()?);
    }
    Ok(Credentials {
        uid,
        gid,
        groups,
        client: ClientId::default(),
        trash: 0,
    })
}

/// Whether the verifier is an empty one of AUTH_NONE. With AUTH_NONE and AUTH_SYS any other verifier has no
/// meaning.
fn verifier(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    let flavor = reader.u32()?;
    let body = reader.opaque(MAX_AUTH_BYTES)?;
    Ok(flavor == AUTH_NONE && body.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// GETATTR by uid 1000, gid 100 and group 27 of machine "box".
    const GOLDEN: &[u8] = &[
        0x12, 0x34, 0x56, 0x78, // xid
        0, 0, 0, 0, // call
        0, 0, 0, 2, // RPC version
        0, 1, 0x86, 0xa3, // program 100003
        0, 0, 0, 3, // version
        0, 0, 0, 1, // procedure
        0, 0, 0, 1, // AUTH_SYS
        0, 0, 0, 28, // its length
        0, 0, 0, 9, // stamp
        0, 0, 0, 3, b'b', b'o', b'x', 0, // machine name
        0, 0, 3, 0xe8, // uid
        0, 0, 0, 100, // gid
        0, 0, 0, 1, 0, 0, 0, 27, // groups
        0, 0, 0, 0, 0, 0, 0, 0, // verifier
        0, 0, 0, 4, 1, 2, 3, 4, // arguments
    ];

    fn denied(wire: &[u8]) -> NotServed {
        Call::decode(wire).unwrap_err()
    }

    fn with(offset: usize, value: u32) -> Vec<u8> {
        let mut wire = GOLDEN.to_vec();
        wire[offset..offset + 4].copy_from_slice(&value.to_be_bytes());
        wire
    }

    #[test]
    fn golden_call() {
        let call = Call::decode(GOLDEN).unwrap();
        assert_eq!(call.xid, 0x12345678);
        let target = (call.program, call.version, call.procedure);
        assert_eq!(target, (100_003, 3, 1));
        let identity = Credentials {
            uid: 1000,
            gid: 100,
            groups: [27].as_slice().into(),
            client: ClientId::default(),
            trash: 0,
        };
        assert_eq!(call.credential, Credential::Sys(identity));
        assert_eq!(call.arguments.rest(), [0, 0, 0, 4, 1, 2, 3, 4]);
    }

    #[test]
    fn what_is_no_call_is_not_answered() {
        assert_eq!(denied(&GOLDEN[..3]), NotServed::NotACall);
        assert_eq!(denied(&with(4, 1)), NotServed::NotACall);
        assert_eq!(denied(&GOLDEN[..20]), NotServed::NotACall);
    }

    #[test]
    fn denials_name_their_reason() {
        let xid = 0x12345678;
        for (wire, denial) in [
            (with(8, 3), Denial::RpcMismatch),
            (with(24, 6), Denial::RejectedCredential),
            (with(28, u32::MAX), Denial::BadCredential),
            (with(28, 404), Denial::BadCredential),
            (with(36, 400), Denial::BadCredential),
            (with(52, 17), Denial::BadCredential),
            (with(64, 401), Denial::BadVerifier),
        ] {
            assert_eq!(denied(&wire), NotServed::Denied { xid, denial });
        }
    }

    /// NULL with AUTH_TLS.
    const PROBE: [u32; 10] = [7, 0, 2, 100_003, 3, 0, AUTH_TLS, 0, 0, 0];

    fn probe(changed: &[(usize, u32)]) -> Vec<u8> {
        let mut words = PROBE.to_vec();
        for (index, word) in changed {
            words[*index] = *word;
        }
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn a_probe_for_tls_has_an_empty_credential_and_an_empty_verifier_of_auth_none() {
        let call = Call::decode(&probe(&[])).unwrap().credential;
        assert_eq!(call, Credential::Tls);
        let refused = |wire: &[u8], denial| {
            assert_eq!(denied(wire), NotServed::Denied { xid: 7, denial });
        };
        // Four bytes of credential: the bytes that were the verifier's flavor.
        let mut filled = probe(&[(7, 4)]);
        filled.extend_from_slice(&[0; 4]);
        refused(&filled, Denial::BadCredential);
        refused(&probe(&[(8, AUTH_SYS)]), Denial::BadVerifier);
        let mut filled = probe(&[(9, 4)]);
        filled.extend_from_slice(&[0; 4]);
        refused(&filled, Denial::BadVerifier);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(wire: Vec<u8>) {
            let _ = Call::decode(&wire);
        }

        #[test]
        fn a_damaged_call_never_panics(offset in 0..GOLDEN.len(), byte: u8, end in 0..GOLDEN.len()) {
            let mut wire = GOLDEN.to_vec();
            wire[offset] = byte;
            let _ = Call::decode(&wire);
            let _ = Call::decode(&wire[..end]);
        }
    }
}
