//! The bytes of a file of the model. All writes fall into two windows, one at the start of the file and one over the
//! end of its first block, so that files have large offsets and few bytes.

use std::ops::Range;

use forebay_types::BLOCK_SIZE;

/// The first window.
pub const LOW: Range<u64> = 0..10 << 10;

/// The second window: the end of the first block and the start of the second.
pub const HIGH: Range<u64> = BLOCK_SIZE - 2048..BLOCK_SIZE + 2048;

/// The bytes of a file. Bytes between the windows, and bytes that were never written, are zeros.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    size: u64,
    /// Bytes of each window up to the last that was written, zeros from `size` on.
    windows: [Vec<u8>; 2],
}

impl Content {
    /// A file of zeros.
    pub fn of_size(size: u64) -> Content {
        Content {
            size,
            ..Content::default()
        }
    }

    /// Bytes in the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The most bytes that were written, and not cut off.
    pub fn written_at_most(&self) -> u64 {
        self.windows.iter().map(|bytes| bytes.len() as u64).sum()
    }

    /// Whether all bytes are zeros.
    pub fn is_zero(&self) -> bool {
        self.windows.iter().flatten().all(|byte| *byte == 0)
    }

    /// Overwrites bytes, which must lie in one window.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        for (window, bytes) in [LOW, HIGH].into_iter().zip(&mut self.windows) {
            if offset >= window.start && end <= window.end {
                let from = (offset - window.start) as usize;
                let to = from + data.len();
                if bytes.len() < to {
                    bytes.resize(to, 0);
                }
                bytes[from..to].copy_from_slice(data);
            }
        }
        self.size = self.size.max(end);
    }

    /// Truncates the file, or extends it with zeros.
    pub fn truncate(&mut self, size: u64) {
        for (window, bytes) in [LOW, HIGH].into_iter().zip(&mut self.windows) {
            bytes.truncate(size.saturating_sub(window.start) as usize);
        }
        self.size = size;
    }

    /// The bytes from `offset` on, and whether they reach the end.
    pub fn read(&self, offset: u64, count: u32) -> (Vec<u8>, bool) {
        let stop = offset.saturating_add(u64::from(count));
        let end = stop.min(self.size);
        let mut data = vec![0; end.saturating_sub(offset) as usize];
        for (window, bytes) in [LOW, HIGH].into_iter().zip(&self.windows) {
            let from = offset.max(window.start);
            let to = end.min(window.start + bytes.len() as u64);
            if from < to {
                data[(from - offset) as usize..(to - offset) as usize].copy_from_slice(
                    &bytes[(from - window.start) as usize..(to - window.start) as usize],
                );
            }
        }
        (data, stop >= self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_off_does_not_come_back() {
        let mut content = Content::default();
        content.write(100, b"abcdef");
        content.write(BLOCK_SIZE - 2, b"wxyz");
        assert_eq!(content.size(), BLOCK_SIZE + 2);
        content.truncate(103);
        content.truncate(BLOCK_SIZE + 1);
        assert_eq!(content.read(100, 6).0, b"abc\0\0\0");
        assert_eq!(content.read(BLOCK_SIZE - 2, 9), (vec![0; 3], true));
    }
}
