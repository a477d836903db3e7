//! Forebay: copies into memory that is not read again soon, with stores that bypass the processor's caches.
//!
//! An ordinary store first fetches the cache line that it changes from memory, even if the whole line is about to be
//! replaced, and then keeps the line in the caches, in place of data that is needed there. [`stream`] stores whole
//! lines without fetching them, as fast as memory takes them; the source stays in the caches. Short copies use
//! ordinary stores, and so do all copies on processors without AVX.

#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

#[cfg(target_arch = "x86_64")]
mod lines;

/// Copies of at least this many bytes bypass the caches. For shorter ones, the wait for the last stores costs more
/// than it saves.
pub const STREAMED_BYTES: usize = 4 << 10;

/// Bytes that are copied, and then shown, at a time: few enough that the callback finds them in the nearest cache.
const SHOWN_BYTES: usize = 8 << 10;

const _: () = assert!(STREAMED_BYTES <= SHOWN_BYTES);

/// Copies `from` to `to` (equal lengths), and passes each piece of `from` to `show`, in order, after it was copied:
/// for example to compute a checksum during the time that the stores take to reach memory. When this returns, other
/// threads see the copied bytes as after an ordinary copy.
///
/// # Panics
/// When the lengths differ.
#[inline]
pub fn stream(to: &mut [u8], from: &[u8], mut show: impl FnMut(&[u8])) {
    assert_eq!(to.len(), from.len());
    if from.len() < STREAMED_BYTES {
        to.copy_from_slice(from);
        show(from);
        return;
    }
    let pieces = to.chunks_mut(SHOWN_BYTES).zip(from.chunks(SHOWN_BYTES));
    #[cfg(target_arch = "x86_64")]
    if let Some(lines) = lines::Lines::begin() {
        for (to, from) in pieces {
            lines.copy(to, from);
            show(from);
        }
        return;
    }
    for (to, from) in pieces {
        to.copy_from_slice(from);
        show(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that mostly differ from those at distances of a power of two.
    fn noise(len: usize) -> Vec<u8> {
        (0..len as u64)
            .map(|at| (at * at * 31 + at / 7) as u8)
            .collect()
    }

    #[test]
    fn what_is_copied_is_what_was_there_whatever_its_length_and_its_place() {
        let from = noise(70_000);
        let lengths = [
            0, 1, 63, 64, 4095, 4096, 4097, 8191, 8192, 8193, 20_000, 65_536,
        ];
        for len in lengths {
            for (at, to) in [(0, 0), (1, 0), (0, 1), (7, 63), (64, 32), (130, 65), (5, 5)] {
                let mut memory = vec![0xee; to + len + 200];
                let mut shown = Vec::new();
                let from = &from[at..at + len];
                stream(&mut memory[to..to + len], from, |piece| {
                    shown.extend_from_slice(piece)
                });
                assert_eq!(shown, from);
                assert_eq!(memory[to..to + len], *from);
                let beside = [&memory[..to], &memory[to + len..]].concat();
                assert!(
                    beside.iter().all(|byte| *byte == 0xee),
                    "{len} bytes to {to}"
                );
            }
        }
    }

    #[test]
    #[should_panic]
    fn lengths_that_differ_are_refused() {
        stream(&mut [0; 8], &[0; 9], |_| ());
    }

    #[test]
    fn another_thread_finds_what_was_copied() {
        for round in 0..200_u8 {
            let (sender, receiver) = std::sync::mpsc::channel::<Vec<u8>>();
            let reader = std::thread::spawn(move || {
                receiver
                    .recv()
                    .is_ok_and(|memory| memory.iter().all(|byte| *byte == round))
            });
            let mut memory = vec![0xff; 5000];
            stream(&mut memory, &[round; 5000], |_| ());
            sender.send(memory).unwrap();
            assert!(reader.join().unwrap());
        }
    }
}
