//! A volume that servers serve in turns. They have two threads, and the client has the benchmark's own, so that the
//! [clocks](crate::clocks) tell both apart.

use std::sync::Arc;

use forebay_fs::Volume;
use tokio::runtime::{Builder, Runtime};

use crate::server::{self, Running};
use crate::volume::{self, Opened};
use crate::{Failure, surroundings};

pub(crate) struct Stage {
    servers: Runtime,
    pub(crate) client: Runtime,
    opened: Opened,
}

impl Stage {
    /// With a volume whose log and bucket are in memory, and which publishes between the turns alone.
    pub(crate) fn new() -> Result<Stage, Failure> {
        let servers = crate::runtime()?;
        let client = Builder::new_current_thread().enable_all().build()?;
        let folder = surroundings::memory_folder();
        let opened = volume::open_with(volume::LOG, folder, volume::publish_on_request);
        let opened = servers.block_on(opened);
        Ok(Stage {
            servers,
            client,
            opened,
        })
    }

    pub(crate) fn volume(&self) -> &Volume {
        &self.opened.volume
    }

    /// Publishes everything.
    pub(crate) fn publish(&self) -> Result<(), Failure> {
        self.servers.block_on(self.volume().flush())?;
        Ok(())
    }

    pub(crate) fn start(&self) -> Running {
        let serve = server::start(Arc::new(self.volume().clone()));
        self.servers.block_on(serve)
    }

    pub(crate) fn stop(&self, running: Running) {
        self.servers.block_on(running.stop());
    }

    pub(crate) fn close(self) {
        self.servers.block_on(self.opened.close());
        // Tasks of the metadata store may wait for each other when they are cut off.
        self.servers.shutdown_background();
    }
}
