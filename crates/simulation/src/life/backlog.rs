//! Looks at the changes that the bucket does not have yet.

use super::Gateway;

impl Gateway<'_> {
    /// Checks that the log has all records that dirty bytes refer to, and counts what is in the log alone.
    pub(super) fn notice_backlog(&mut self) -> Result<(), String> {
        let backlog = self.volume.backlog();
        if let Some(oldest) = backlog.oldest_record
            && oldest < backlog.published
        {
            return Err(format!(
                "dirty bytes refer to the record at {oldest}, and the log is recycled up to {}",
                backlog.published
            ));
        }
        self.totals.spilled_bytes += backlog.spilled_bytes.saturating_sub(self.spilled);
        self.spilled = backlog.spilled_bytes;
        let most = &mut self.totals.most_waiting;
        *most = (*most).max(backlog.waiting_checkpoints as u64);
        Ok(())
    }
}
