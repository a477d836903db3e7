//! The refusal of a volume that another gateway holds: which gateway that is, and what its operator can do.
//!
//! [`hold`](super::hold) decides it; it is one of the [errors](super::error) of an opening.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use forebay_meta::volume::holder::{HOLDER_NAME, Holder, time};

/// A volume that another gateway holds, or did not close in order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct HeldVolume {
    /// The store.
    pub url: String,
    /// The content of the note, or the reason why it cannot be read.
    pub holder: Result<Holder, String>,
    /// Whether the note names the local folder of this gateway: then a copy of it was used since.
    pub is_copy: bool,
    /// Name of this machine.
    pub host: String,
    /// The local folder of this gateway.
    pub data_dir: PathBuf,
}

impl fmt::Display for HeldVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HeldVolume { url, data_dir, .. } = self;
        let data_dir = data_dir.display();
        let holder = match &self.holder {
            Ok(holder) => holder,
            Err(why) => {
                return write!(
                    f,
                    "cannot read the object {HOLDER_NAME} of the volume at {url}, which names the gateway that holds it: {why}. Make sure that no other gateway serves the volume, and start with --take-over"
                );
            }
        };
        match holder.stopped {
            Some(stopped) => write!(
                f,
                "the volume at {url} has unpublished changes: {holder} stopped at {} with {} bytes that are not in the bucket",
                time(stopped.at),
                stopped.unpublished_bytes
            )?,
            None => write!(
                f,
                "the volume at {url} is held by {holder}, which has not shut down cleanly"
            )?,
        }
        if self.is_copy {
            write!(f, ", from a copy of {data_dir}")?;
        }
        let interval = Duration::from_millis(holder.publishes_every_ms);
        match holder.has_log {
            true => write!(
                f,
                ". It publishes at least every {interval:?} while the bucket answers; changes that it has acknowledged since its last publication are in its log alone"
            )?,
            false => write!(
                f,
                ". It has no log: it has acknowledged no unpublished change as stable"
            )?,
        }
        let is_here = holder.host == self.host && !self.is_copy;
        if is_here && holder.data_dir == data_dir.to_string() {
            write!(
                f,
                ". That is this data_dir, but the state file of that gateway is missing in it: restore that file, and the log is published"
            )?;
        } else if is_here {
            write!(
                f,
                ". That is this machine: if you meant another data_dir than {data_dir}, start with that one, which needs no flag"
            )?;
        }
        write!(
            f,
            ". If that gateway runs, shut it down cleanly; if it crashed, start it once more with its own data_dir and shut it down. If neither is possible, start this one with --take-over: the other one then stops at its next publication, and its unpublished changes stay in its log and are not in the volume"
        )
    }
}
