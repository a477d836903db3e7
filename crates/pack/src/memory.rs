//! The buffer in which a pack is assembled.

/// A buffer that grows at its end, and reuses the bytes of a former pack if there are any: they are replaced, whole
/// cache lines of them with stores that bypass the processor's caches ([`Memory::put_past_caches`]).
pub(crate) struct Memory {
    /// As long as the longest pack so far, former packs included.
    bytes: Vec<u8>,
    /// Length of this pack.
    len: usize,
}

impl Memory {
    /// An empty pack in the memory of `former`.
    pub(crate) fn over(former: Vec<u8>) -> Memory {
        Memory {
            bytes: former,
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The bytes from `at` on.
    pub(crate) fn since(&self, at: usize) -> &[u8] {
        &self.bytes[at..self.len]
    }

    pub(crate) fn since_mut(&mut self, at: usize) -> &mut [u8] {
        &mut self.bytes[at..self.len]
    }

    /// Drops the bytes from `at` on.
    pub(crate) fn truncate(&mut self, at: usize) {
        self.len = self.len.min(at);
    }

    /// Makes room for `bytes` more bytes. If the capacity is too small, the rest of a former pack is dropped.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        if self.bytes.capacity() < self.len + bytes {
            self.bytes.truncate(self.len);
            self.bytes.reserve(bytes);
        }
    }

    pub(crate) fn put(&mut self, data: &[u8]) {
        match self.former(data.len()) {
            Some(target) => target.copy_from_slice(data),
            None => self.append(data),
        }
        self.len += data.len();
    }

    /// The same for data that are not read soon; `show` receives all of `data`, in pieces, in order, while they are in
    /// the processor's caches.
    pub(crate) fn put_past_caches(&mut self, data: &[u8], mut show: impl FnMut(&[u8])) {
        match self.former(data.len()) {
            Some(target) => forebay_copy::stream(target, data, show),
            None => {
                self.append(data);
                show(data);
            }
        }
        self.len += data.len();
    }

    /// The bytes of the pack; the vector can be reused for the next pack.
    pub(crate) fn into_vec(mut self) -> Vec<u8> {
        self.bytes.truncate(self.len);
        self.bytes
    }

    /// The next `bytes` bytes, if a former pack had them all.
    fn former(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.bytes.get_mut(self.len..self.len + bytes)
    }

    fn append(&mut self, data: &[u8]) {
        self.bytes.truncate(self.len);
        self.bytes.extend_from_slice(data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_there_whatever_was_before() {
        let data: Vec<u8> = (0..20_000u32).map(|at| (at / 3) as u8).collect();
        for former in [0, 10, 5_000, 10_000, 15_000, 50_000] {
            let mut memory = Memory::over(vec![0xee; former]);
            memory.put(&data[..10]);
            let mut shown = Vec::new();
            memory.put_past_caches(&data[10..10_010], |piece| shown.extend_from_slice(piece));
            assert_eq!(shown, data[10..10_010]);
            memory.put(b"no");
            memory.truncate(10_010);
            memory.since_mut(10_000)[0] ^= 0xff;
            assert_eq!(memory.since(10_000)[0], !data[10_000]);
            memory.since_mut(10_000)[0] ^= 0xff;
            memory.put(&data[10_010..]);
            assert_eq!(memory.len(), data.len());
            assert_eq!(memory.into_vec(), data, "over {former} bytes");
        }
    }

    #[test]
    fn room_is_kept_with_what_was_put() {
        let mut memory = Memory::over(vec![0xee; 100]);
        memory.put(b"abc");
        memory.reserve(10);
        assert_eq!(memory.bytes.len(), 100, "there is room");
        memory.reserve(1000);
        assert!(memory.bytes.capacity() >= 1003);
        let at = memory.bytes.as_ptr();
        memory.put(&[7; 1000]);
        assert_eq!(memory.bytes.as_ptr(), at);
        assert_eq!(memory.since(0)[..4], *b"abc\x07");
    }
}
