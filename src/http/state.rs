//! The state behind all handlers.

use std::path::PathBuf;
use std::sync::Arc;

use forebay_fs::Opening;
use forebay_salvage::logs::ArchivedLog;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use super::access::Access;
use super::counts::Counts;
use super::metrics::ClientCounts;
use super::rate::Rate;
use super::reply::Refusal;
use super::shared::Shared;
use super::{Limits, Server, Stopping};
use crate::admin::{Control, ExportStatus, QuotaReport, QuotaRequest, Status};
use crate::live::Live;

/// Requests per second that are answered at all.
pub(super) const REQUESTS_PER_SECOND: u32 = 500;

/// Connections per second that are accepted.
const CONNECTIONS_PER_SECOND: u32 = 200;

/// Computations per second of each shared answer.
const ANSWERS_PER_SECOND: u32 = 20;

/// The state of the server: the gateway once it is opened, and the limits.
pub(super) struct Admin<C> {
    control: watch::Receiver<Option<Arc<C>>>,
    pub(super) opening: Opening,
    pub(super) stopping: Stopping,
    access: Arc<Mutex<Arc<Access>>>,
    pub(super) data_dir: PathBuf,
    pub(super) limits: Limits,
    pub(super) connections: Arc<Semaphore>,
    pub(super) requests: Semaphore,
    pub(super) flushes: Semaphore,
    pub(super) walks: Semaphore,
    /// Clients that follow events.
    pub(super) followers: Arc<Semaphore>,
    /// Large answers in memory.
    pub(super) large: Arc<Semaphore>,
    pub(super) counts: Arc<Counts>,
    /// The rate of requests.
    pub(super) rate: Rate,
    /// The rate of connections.
    pub(super) accepted: Rate,
    status: Shared<Status>,
    exports: Shared<Vec<ExportStatus>>,
    quotas: Shared<Result<Vec<QuotaReport>, String>>,
    /// The last ten minutes.
    pub(super) live: Shared<Live>,
    /// The archived logs.
    pub(super) logs: Shared<Vec<ArchivedLog>>,
    /// The metrics in the format of Prometheus.
    pub(super) text: Shared<String>,
    /// The metrics in the format of OpenMetrics.
    pub(super) open_metrics: Shared<String>,
    /// What each client has done.
    pub(super) clients: Shared<Vec<ClientCounts>>,
}

impl<C: Control> Admin<C> {
    pub(super) fn new(
        server: &Server,
        control: watch::Receiver<Option<Arc<C>>>,
        opening: Opening,
        stopping: Stopping,
    ) -> Admin<C> {
        let limits = server.limits;
        Admin {
            control,
            opening,
            stopping,
            access: server.access.clone(),
            data_dir: server.data_dir.clone(),
            limits,
            connections: Arc::new(Semaphore::new(limits.connections)),
            requests: Semaphore::new(limits.requests),
            flushes: Semaphore::new(limits.flushes),
            walks: Semaphore::new(limits.walks),
            followers: Arc::new(Semaphore::new(limits.followers)),
            large: Arc::new(Semaphore::new(limits.large)),
            counts: Arc::default(),
            rate: Rate::new(REQUESTS_PER_SECOND, 50),
            accepted: Rate::new(CONNECTIONS_PER_SECOND, 50),
            status: Shared::new(ANSWERS_PER_SECOND),
            exports: Shared::new(ANSWERS_PER_SECOND),
            quotas: Shared::new(ANSWERS_PER_SECOND),
            live: Shared::new(ANSWERS_PER_SECOND),
            logs: Shared::new(ANSWERS_PER_SECOND),
            text: Shared::new(ANSWERS_PER_SECOND),
            open_metrics: Shared::new(ANSWERS_PER_SECOND),
            clients: Shared::new(ANSWERS_PER_SECOND),
        }
    }

    /// The access in force.
    pub(super) fn access(&self) -> Arc<Access> {
        self.access.lock().clone()
    }

    /// The gateway, if it is opened.
    pub(super) fn gateway(&self) -> Option<Arc<C>> {
        self.control.borrow().clone()
    }

    /// The gateway.
    ///
    /// # Errors
    /// It is still opening the volume.
    pub(super) fn opened(&self) -> Result<Arc<C>, Refusal> {
        self.gateway().ok_or_else(|| {
            let step = self.opening.step().what;
            Refusal::unavailable(format!("the gateway is still opening the volume: {step}"))
        })
    }

    /// The status of a gateway.
    pub(super) async fn status(&self, gateway: &C) -> Arc<Status> {
        self.status.get(gateway.status()).await
    }

    /// Its exports.
    pub(super) async fn exports(&self, gateway: &C) -> Arc<Vec<ExportStatus>> {
        self.exports.get(gateway.exports()).await
    }

    /// Its quotas.
    pub(super) async fn quotas(&self, gateway: &C) -> Arc<Result<Vec<QuotaReport>, String>> {
        self.quotas.get(gateway.quota(QuotaRequest::List)).await
    }
}
