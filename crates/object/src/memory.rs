//! Stores in the memory of this process: for tests, and for volumes that nobody needs to keep.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use object_store::memory::InMemory;
use parking_lot::Mutex;

static NAMED: LazyLock<Mutex<HashMap<String, Arc<InMemory>>>> = LazyLock::new(Mutex::default);

/// An empty store of its own, or the one store that this process has under `name`, which lives
/// until the process ends.
pub(crate) fn open(name: Option<&str>) -> Arc<InMemory> {
    match name {
        None => Arc::default(),
        Some(name) => Arc::clone(NAMED.lock().entry(name.to_owned()).or_default()),
    }
}
