//! Whether the trash takes more room than it may.

use forebay_quota::Amount;

/// What an entry takes in the metadata, so that a trash full of empty files has an end as well.
pub(crate) const ENTRY_BYTES: u64 = 4096;

/// The room that the trash takes, and what it may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// The size of the trash.
    pub(super) trash: Amount,
    /// The size of the volume beside it.
    pub(super) volume: Amount,
    /// Limit of both together.
    pub(super) volume_limit: Amount,
    /// Limit of the trash in bytes.
    pub(super) trash_limit: u64,
}

impl Room {
    /// Whether something has to leave the trash before its time.
    pub(super) fn is_over(&self) -> bool {
        let Amount { bytes, files } = self.trash;
        let entries = files.saturating_mul(ENTRY_BYTES);
        files > 0
            && (bytes.saturating_add(entries) > self.trash_limit
                || bytes.saturating_add(self.volume.bytes) > self.volume_limit.bytes
                || files.saturating_add(self.volume.files) > self.volume_limit.files)
    }

    /// Notes that an object leaves.
    pub(super) fn leaves(&mut self, object: Amount) {
        self.trash.bytes = self.trash.bytes.saturating_sub(object.bytes);
        self.trash.files = self.trash.files.saturating_sub(object.files);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(bytes: u64, files: u64) -> Amount {
        Amount { bytes, files }
    }

    fn room(trash: Amount, volume: Amount) -> Room {
        Room {
            trash,
            volume,
            volume_limit: amount(1 << 20, 100),
            trash_limit: 512 << 10,
        }
    }

    #[test]
    fn an_empty_trash_takes_no_room_even_in_a_full_volume() {
        assert!(!room(amount(0, 0), amount(2 << 20, 200)).is_over());
    }

    #[test]
    fn entries_count_beside_their_bytes() {
        let most = (512 << 10) - 10 * ENTRY_BYTES;
        assert!(!room(amount(most, 10), amount(0, 0)).is_over());
        assert!(room(amount(most + 1, 10), amount(0, 0)).is_over());
        assert!(room(amount(0, 129), amount(0, 0)).is_over());
    }

    #[test]
    fn what_has_a_name_comes_first_in_the_limits_of_the_volume() {
        let volume = amount((1 << 20) - 2048, 95);
        assert!(!room(amount(2048, 5), volume).is_over());
        assert!(room(amount(2049, 5), volume).is_over());
        let mut full = room(amount(1024, 6), volume);
        assert!(full.is_over(), "101 objects");
        full.leaves(amount(0, 1));
        assert!(!full.is_over());
    }
}
