//! A source tree made from a seed, with the shape, sizes and text of real ones.
//!
//! Sizes are distributed log-normally, as those of files are: half of them below 4 KiB, a mean of about 12 KiB, and one
//! in five hundred of 0.6 to 2 MiB. There is a directory for every ten files, at most seven deep.

use std::ops::Range;

use super::{KIB, MIB, Random};
use crate::surroundings;

/// Size of the median file in bytes.
const MEDIAN_BYTES: f64 = 4096.0;
/// Standard deviation of the logarithm.
const SPREAD: f64 = 1.5;
const DEEPEST: usize = 7;

/// Content of an archive of the tree, in its order: each directory before its content.
pub(crate) struct Tree {
    pub(super) entries: Vec<Entry>,
    /// Number of directories, including the one at the top.
    pub(super) directories: usize,
    text: Vec<u8>,
}

/// A file or directory.
pub(super) struct Entry {
    /// Number of its directory; 0 is the one at the top.
    pub(super) parent: usize,
    pub(super) name: String,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    /// A directory, by number.
    Directory(usize),
    File {
        /// Position of its bytes in the text of the tree.
        text: Range<usize>,
        /// Mode bits.
        mode: u32,
        /// Time of modification, in seconds since 1970.
        modified: u32,
    },
}

/// A directory that is being filled.
#[derive(Default)]
struct Place {
    depth: usize,
    directories: Vec<usize>,
    files: Vec<usize>,
}

impl Tree {
    /// A tree with this number of files.
    pub(crate) fn new(files: usize) -> Tree {
        let mut random = Random(11);
        let mut places = vec![Place::default()];
        for number in 1..=files / 10 {
            let parent = loop {
                let parent = random.below(number);
                if places[parent].depth < DEEPEST {
                    break parent;
                }
            };
            let depth = places[parent].depth + 1;
            places[parent].directories.push(number);
            places.push(Place {
                depth,
                ..Place::default()
            });
        }
        for number in 0..files {
            let place = random.below(places.len());
            places[place].files.push(number);
        }
        let mut tree = Tree {
            entries: Vec::new(),
            directories: places.len(),
            text: Vec::new(),
        };
        let mut sizes = Vec::new();
        tree.add(&places, 0, &mut random, &mut sizes);
        tree.text = surroundings::text(3, sizes.iter().sum());
        tree
    }

    fn add(
        &mut self,
        places: &[Place],
        directory: usize,
        random: &mut Random,
        sizes: &mut Vec<usize>,
    ) {
        for number in &places[directory].files {
            let begin = sizes.iter().sum();
            let size = size_of(*number, random);
            sizes.push(size);
            self.entries.push(Entry {
                parent: directory,
                name: format!("module_{number}.rs"),
                kind: Kind::File {
                    text: begin..begin + size,
                    mode: if number % 50 == 0 { 0o755 } else { 0o644 },
                    modified: 1_600_000_000 + *number as u32,
                },
            });
        }
        for number in &places[directory].directories {
            self.entries.push(Entry {
                parent: directory,
                name: format!("part_{number}"),
                kind: Kind::Directory(*number),
            });
            self.add(places, *number, random, sizes);
        }
    }

    pub(super) fn bytes(&self, text: &Range<usize>) -> &[u8] {
        &self.text[text.clone()]
    }

    /// Bytes of all files.
    pub(crate) fn total_bytes(&self) -> usize {
        self.text.len()
    }
}

fn size_of(number: usize, random: &mut Random) -> usize {
    if number % 500 == 7 {
        return 600 * KIB + random.below(2 * MIB - 600 * KIB);
    }
    // The sum of twelve has variance 1.
    let normal: f64 = (0..12).map(|_| random.share()).sum::<f64>() - 6.0;
    let size = MEDIAN_BYTES * (normal * SPREAD).exp();
    // Sometimes an empty file, such as `__init__.py`.
    if random.below(40) == 0 {
        0
    } else {
        size as usize
    }
}
