//! What the server asks of a call before the call begins: its kind, the bytes of its reply, and whether it may be put off.

use crate::{mount, nfs3, nlm, rpc};

/// Kinds of calls that do not wait for one another: a waiting call of one kind does not block calls of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    /// Looks at names and attributes: short, and mostly in memory.
    Looking,
    /// Has a reply that may be long.
    Reading,
    /// Changes something, or waits for earlier changes.
    Changing,
}

impl Lane {
    pub(crate) const ALL: [Lane; 3] = [Lane::Looking, Lane::Reading, Lane::Changing];
}

/// Whether a call may be answered NFS3ERR_JUKEBOX without being executed. That is an NFS call that is safe to execute
/// twice; any other call may be a repetition of one in flight already, and must not get this answer.
pub(crate) fn may_be_put_off(record: &[u8]) -> bool {
    match rpc::wanted(record) {
        Some((nfs3::PROGRAM, procedure)) => {
            nfs3::has_status(procedure) && !nfs3::is_replayed(procedure)
        }
        Some(_) | None => false,
    }
}

/// Returns the lane of the call in a record, and an upper bound for the bytes of its reply.
pub(crate) fn demand(record: &[u8]) -> (Lane, usize) {
    // Only a WRITE has a valid reason to be this long, and its reply is short. Any other record of
    // this length has bytes left over, and the reply to that is short as well.
    const LONGEST_SMALL_CALL: usize = 16 << 10;
    const SHORT: usize = 512;
    let is_long = record.len() > LONGEST_SMALL_CALL;
    // The call is decoded when it begins; one that cannot be decoded has a short reply.
    let (lane, bytes) = match rpc::wanted(record) {
        Some((nfs3::PROGRAM, procedure)) => {
            let lane = match procedure {
                _ if nfs3::is_long(procedure) => Lane::Reading,
                _ if nfs3::is_waited_for(procedure) => Lane::Changing,
                _ => Lane::Looking,
            };
            (lane, nfs3::reply_bound(procedure, record))
        }
        Some((mount::PROGRAM, procedure)) => (Lane::Looking, mount::reply_bound(procedure)),
        Some((nlm::PROGRAM, _)) => (Lane::Changing, nlm::REPLY_BYTES),
        Some(_) | None => (Lane::Looking, SHORT),
    };
    (lane, if is_long { SHORT } else { bytes })
}
