//! Common inputs of measurements: a folder in memory, and data.

#![allow(dead_code, reason = "no benchmark needs all of it")]

use std::fs;
use std::path::Path;

use memmap2::{Advice, MmapMut};

/// The folder for files that need no disk.
pub(crate) fn memory_folder() -> &'static Path {
    Path::new("/dev/shm")
}

/// Uses memory once and frees it again: half of the available memory, 8 GiB at most. So later measurements all find
/// memory in the same state.
///
/// A virtual machine may return free memory to its host after some seconds (free page reporting). There the first use
/// of a page takes ten times as long as the next one, by whatever process, and of two measurements that are compared
/// the second would be ahead. For those who measure: a minute of it for ten times.
pub(crate) fn use_memory_once() {
    let told = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = told.lines().find_map(|line| {
        line.strip_prefix("MemAvailable:")?
            .split_whitespace()
            .next()
    });
    let kib = available.and_then(|kib| kib.parse::<usize>().ok());
    let bytes = (kib.unwrap_or(0) << 10 >> 1).min(8 << 30);
    // An empty map is an error, and needs no work.
    if let Ok(map) = MmapMut::map_anon(bytes) {
        let _ = map.advise(Advice::PopulateWrite);
    }
}

/// Bytes that do not compress, different for each seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&next_random(&mut state).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// The next number of a pseudo-random sequence (xorshift), which begins with any number but zero.
pub(crate) fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Text that compresses to about a third, as source code and logs do.
pub(crate) fn text(seed: u64, len: usize) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "block",
        "let mut",
        "return",
        "offset",
        "self.",
        "=",
        "+= 1;\n",
        "(inode)",
        "match ",
        " => ",
        "{\n    ",
        "}\n",
        "0x",
        "Ok(())",
        "frame",
        "// what is left\n",
    ];
    let mut bytes = Vec::with_capacity(len + 32);
    for number in noise(seed, len) {
        if bytes.len() >= len {
            break;
        }
        bytes.extend_from_slice(WORDS[usize::from(number % 16)].as_bytes());
        // Names and numbers that do not occur a second time.
        if number >= 192 {
            bytes.extend_from_slice(
                format!("{:x}", u64::from(number) * bytes.len() as u64).as_bytes(),
            );
        }
    }
    bytes.truncate(len);
    bytes
}
