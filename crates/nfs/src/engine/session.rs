//! A connection, under one version of the exports.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use forebay_vfs::{Trees, Trouble};

use super::{Engine, Outcome};
use crate::exports::{Client, Exports};
use crate::metrics::ClientCounts;
use crate::rpc::{self, Credential, Reply};
use crate::{Transport, nfs3};

/// One client's connection, as the protocol sees it under one version of the exports.
pub(crate) struct Session<F> {
    pub(crate) engine: Arc<Engine<F>>,
    pub(super) peer: SocketAddr,
    pub(super) transport: Transport,
    pub(crate) exports: Arc<Exports<F>>,
    pub(crate) client: Client,
    /// What the client has done.
    pub(crate) counts: Arc<ClientCounts>,
    /// The local address that the client connected to.
    pub(super) local: IpAddr,
}

impl<F: Trees> Session<F> {
    /// Collects the context of an NFS call. The client of `claimed` must be set.
    pub(super) fn request<'a>(
        &'a self,
        procedure: u32,
        claimed: &'a Credential,
    ) -> nfs3::Request<'a, F> {
        nfs3::Request {
            handles: &self.engine.handles,
            metrics: &self.engine.metrics,
            exports: &self.exports,
            client: &self.client,
            claimed,
            changes: nfs3::is_change(procedure),
            in_clear: false,
            too_weak: AtomicBool::new(false),
        }
    }

    /// Counts the answer to an NFS call that took `time` since its last byte was read.
    #[inline]
    pub(crate) fn count(&self, record: &[u8], outcome: &Outcome, time: Duration) {
        if let Outcome::Reply(reply) = outcome {
            if let Some(call) = forebay_waits::noted() {
                self.count_waits(record, &call);
            }
            self.count_reply(record, reply, time);
        }
    }

    /// Counts what an answered NFS call has waited for.
    #[cold]
    fn count_waits(&self, record: &[u8], call: &forebay_waits::Call) {
        if let Some((nfs3::PROGRAM, _)) = rpc::wanted(record) {
            self.engine.metrics.waits.answered(call);
        }
    }

    /// Counts the reply to an NFS call that took `time` since its last byte was read.
    #[inline]
    pub(crate) fn count_reply(&self, record: &[u8], reply: &Reply, time: Duration) {
        if let Some((nfs3::PROGRAM, procedure)) = rpc::wanted(record) {
            let nanos = nanos(time);
            let calls = &self.engine.metrics.calls;
            calls.answered(procedure, reply.answered(), nanos);
            self.counts.answered(nanos);
            let watch = &self.engine.watch;
            if nanos >= watch.above() {
                watch.answered(self, record, procedure, reply, time);
            }
        }
    }

    /// Counts a refused mount, if the client's address or port is why.
    pub(super) fn count_refusal(&self) {
        if self.client.is_known() {
            return;
        }
        let mut elsewhere = self.exports.listed_for(self.client.address);
        let kind = match elsewhere.next() {
            // From another port the client might mount.
            Some(_) => Trouble::MountPort,
            None => Trouble::MountAddress,
        };
        self.engine.troubles.refused(kind, self.client.address);
    }

    /// Whether no export names the client's address, on any port.
    pub(crate) fn is_stranger(&self) -> bool {
        !self.client.is_known()
            && self
                .exports
                .listed_for(self.client.address)
                .next()
                .is_none()
    }

    /// Returns the session for the next call, if the exports were replaced since this session began.
    pub(crate) fn renewed(&self) -> Option<Session<F>> {
        let replaced = self.engine.exports.has_replaced(&self.exports);
        replaced.then(|| self.secured(self.transport))
    }

    /// Returns the session of the same connection after a change of its protection.
    pub(crate) fn secured(&self, transport: Transport) -> Session<F> {
        self.engine.session(self.peer, self.local, transport)
    }
}

/// A time in nanoseconds.
fn nanos(time: Duration) -> u64 {
    time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos())
}
