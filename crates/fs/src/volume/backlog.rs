//! The changes that the bucket does not have yet, as tests look at them.

use forebay_types::Lsn;

use super::Volume;

/// The changes that the bucket does not have yet.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Dirty bytes that are in the log alone.
    pub spilled_bytes: u64,
    /// Closed checkpoints that wait for the publisher.
    pub waiting_checkpoints: usize,
    /// The oldest record that a dirty byte refers to. Everything from there on must stay in the log.
    pub oldest_record: Option<Lsn>,
    /// The bucket has everything before.
    pub published: Lsn,
}

impl Volume {
    /// The changes that the bucket does not have yet. Only for tests: it looks at every object in memory.
    #[doc(hidden)]
    pub fn backlog(&self) -> Backlog {
        let state = &self.rooms.state;
        let nodes = state.nodes.all();
        let records = nodes
            .iter()
            .filter_map(|node| node.lock().blocks.oldest_record());
        Backlog {
            spilled_bytes: state.memory.cache.spilled_bytes(),
            waiting_checkpoints: state.waiting_checkpoints(),
            oldest_record: records.min(),
            published: self.rooms.publisher.progress().published(),
        }
    }
}
