//! The cost of compressing and sealing: frames written and opened, raw, compressed, sealed and both, compared with a
//! copy of the same bytes, `zstd -b` and `openssl speed`; and the cipher alone.
//! `cargo bench -p forebay-pack --bench sealing`.
//!
//! A round measures all of them, one after the other, on one core, in processor time, as `openssl speed` does: a busy
//! machine does not increase it. Only `zstd -b` measures wall-clock time: its figures are valid on an idle machine
//! only. Frames have 256 KiB, as those of streams, or 4 KiB. `openssl` and `zstd` run if they are installed: Debian has
//! them as the packages of these names.
//!
//! * `--rounds N`: number of rounds, 15 by default.
//! * `--update FILE`: writes the tables into that file, between their marks.
//!
//! Under `cargo test` it does a little of each, to show that it works. The allocator is that of the program.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers here are small"
)]

use std::error::Error;
use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_measure::{Arguments, Machine, Median, Round, Rounds, table};
use forebay_pack::{Compression, FrameRef, PackKeys, PackWriter, open_frame};
use forebay_seal::{DataKeyId, DataKeys, Purpose, Secret, SystemEntropy};
use forebay_types::{BlockIndex, BlockKey, ByteRange, Inode, PackId, VolumeId};
use rustix::time::{ClockId, clock_gettime};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const COMMAND: &str = "cargo bench -p forebay-pack --bench sealing";
const VOLUME: VolumeId = VolumeId([7; 16]);
const PACK: PackId = PackId(1);
const BLOCK: BlockKey = BlockKey {
    inode: Inode(2),
    block: BlockIndex(0),
};

/// Frame lengths, and their names.
const SIZES: [(usize, &str); 2] = [(256 << 10, "256 KiB"), (4 << 10, "4 KiB")];
/// Raw bytes that are written into one pack.
const PACK_LEN: usize = 16 << 20;
const KINDS: [&str; 4] = ["raw", "raw, sealed", "zstd", "zstd, sealed"];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::of_this(&["--rounds"], &[])?;
    if !arguments.chooses("sealing") {
        return Ok(());
    }
    let count = match arguments.after("--rounds") {
        Some(count) => count.parse()?,
        None if arguments.full() => 15,
        None => 1,
    };
    // Bytes that each figure of a round covers.
    let bytes = if arguments.full() { 128 << 20 } else { 1 << 20 };
    let rounds = (0..count).map(|_| round(bytes, arguments.full()));
    let rounds = Rounds::new(rounds.collect());

    let machine = Machine::this();
    let caption = machine.caption(COMMAND, "MB/s of raw bytes, medians, quartiles in brackets");
    let tables = format!("{caption}\n\n{}\n{}", frames(&rounds), ciphers(&rounds));
    arguments.show("sealing", &tables)?;
    Ok(())
}

/// Frames written and opened, and the comparison for each kind: a copy of the same bytes, `zstd -b`, and `openssl
/// speed`.
fn frames(rounds: &Rounds) -> String {
    let mut text = table::head(&[
        "frames",
        "written",
        "opened",
        "written, to not sealed",
        "written, to the line below",
    ]);
    for (_, size) in SIZES {
        for (kinds, like) in [
            (&KINDS[..1], "copy"),
            (&KINDS[1..2], "openssl"),
            (&KINDS[2..], "zstd -b"),
        ] {
            let like = format!("{size} {like}");
            for kind in kinds {
                let written = format!("{size} {kind} written");
                let opened = format!("{size} {kind} opened");
                let plain = kind.strip_suffix(", sealed");
                let plain = plain.map(|plain| format!("{size} {plain} written"));
                let ratio = plain.map(|plain| table::times(rounds.ratio(&written, &plain)));
                text += &table::line([
                    format!("{size}, {kind}"),
                    table::whole(rounds.median(&written)),
                    table::whole(rounds.median(&opened)),
                    ratio.unwrap_or_default(),
                    if_measured(rounds.ratio(&written, &like), table::times),
                ]);
            }
            let reads = format!("{like} opened");
            let opened = match like.ends_with("zstd -b") {
                true => if_measured(rounds.median(&reads), table::whole),
                false => String::new(),
            };
            text += &table::line([
                format!("*{like}*"),
                if_measured(rounds.median(&like), table::whole),
                opened,
                String::new(),
                String::new(),
            ]);
        }
    }
    text
}

fn if_measured(median: Median, shown: fn(Median) -> String) -> String {
    match median.value.is_nan() {
        true => "not measured".into(),
        false => shown(median),
    }
}

/// AES-256-GCM alone.
fn ciphers(rounds: &Rounds) -> String {
    let mut text = table::head(&["AES-256-GCM, in place", "256 KiB", "4 KiB", "to openssl"]);
    for name in ["ring", "openssl"] {
        let of = |size| rounds.median(&format!("{size} {name}"));
        let ratio = rounds.ratio(&format!("256 KiB {name}"), "256 KiB openssl");
        text += &table::line([
            name.to_owned(),
            if_measured(of("256 KiB"), table::whole),
            if_measured(of("4 KiB"), table::whole),
            if_measured(ratio, table::times),
        ]);
    }
    text
}

/// MB/s of everything.
fn round(bytes: usize, full: bool) -> Round {
    let mut round = Round::default();
    let entropy = Arc::new(SystemEntropy);
    let data_key = (DataKeyId(1), Secret::take(&mut [1; 32]));
    let data_keys = Arc::new(DataKeys::new(VOLUME, data_key, []));
    let plain = PackKeys::new(VOLUME, &[2; 32]);
    let sealed = PackKeys::sealed(&[2; 32], Arc::clone(&data_keys), entropy.clone());
    for (len, size) in SIZES {
        let turns = bytes / len;
        let (noise, text) = (noise(len), text(len));
        let mut to = vec![0; len];
        let copied = rate(bytes, || {
            for _ in 0..turns {
                to.copy_from_slice(black_box(&noise));
                black_box(&mut to);
            }
        });
        round.insert(format!("{size} copy"), copied);
        for (kind, raw, keys) in [
            (KINDS[0], &noise, &plain),
            (KINDS[1], &noise, &sealed),
            (KINDS[2], &text, &plain),
            (KINDS[3], &text, &sealed),
        ] {
            let (written, opened) = write_and_open(raw, keys, turns);
            round.insert(format!("{size} {kind} written"), written);
            round.insert(format!("{size} {kind} opened"), opened);
        }
        let mut sealer = data_keys.sealer(Purpose::Pack, 1, &*entropy);
        let sealed = rate(bytes, || {
            for _ in 0..turns {
                black_box(sealer.seal(&[0; 40], black_box(&mut to)));
            }
        });
        round.insert(format!("{size} ring"), sealed);
        if let Some(sealed) = rate_of_openssl(len, full) {
            round.insert(format!("{size} openssl"), sealed);
        }
        if let Some((written, opened)) = rates_of_zstd(&text, full) {
            round.insert(format!("{size} zstd -b"), written);
            round.insert(format!("{size} zstd -b opened"), opened);
        }
    }
    round
}

/// Writes one frame after the other into packs that have room for them, and opens them again, each in memory of its
/// own, as it comes from the bucket. The first pack does not count: its memory was never touched before.
fn write_and_open(raw: &[u8], keys: &PackKeys, turns: usize) -> (f64, f64) {
    let range = ByteRange::at(0, raw.len() as u64);
    let frames_in_pack = turns.min(PACK_LEN / raw.len());
    let packs = turns / frames_in_pack;
    let (mut writing, mut opening) = (Duration::ZERO, Duration::ZERO);
    let most = PackWriter::most_bytes(frames_in_pack, frames_in_pack * raw.len());
    let mut memory = Vec::with_capacity(most);
    for pack in 0..=packs {
        let mut writer = PackWriter::new_in(memory, PACK, keys, Compression::default());
        let mut frames: Vec<FrameRef> = Vec::with_capacity(frames_in_pack);
        let wrote = time_of(|| {
            for _ in 0..frames_in_pack {
                frames.push(writer.push(BLOCK, range, std::iter::once(raw)));
            }
        });
        let (bytes, _) = writer.finish_in_memory();
        let came = frames.iter().map(|frame| {
            let stored = &bytes[std::ops::Range::from(frame.stored_range())];
            Bytes::copy_from_slice(stored)
        });
        let came: Vec<Bytes> = came.collect();
        let opened = time_of(|| {
            for (stored, frame) in came.into_iter().zip(&frames) {
                let opened = open_frame(stored, frame, BLOCK, keys);
                black_box(opened.expect("a good frame"));
            }
        });
        if pack > 0 {
            writing += wrote;
            opening += opened;
        }
        memory = bytes;
    }
    let bytes = (packs * frames_in_pack * raw.len()) as f64 / 1e6;
    (bytes / writing.as_secs_f64(), bytes / opening.as_secs_f64())
}

/// The result of `openssl speed`, if there is an `openssl`.
fn rate_of_openssl(len: usize, full: bool) -> Option<f64> {
    if !full {
        return None;
    }
    let len = len.to_string();
    let speed = [
        "speed",
        "-seconds",
        "1",
        "-evp",
        "aes-256-gcm",
        "-bytes",
        &len,
    ];
    let output = Command::new("openssl").args(speed).output().ok()?;
    let output = String::from_utf8(output.stdout).ok()?;
    let last = output
        .lines()
        .rfind(|line| line.starts_with("AES-256-GCM"))?;
    let thousands = last.split_whitespace().last()?.strip_suffix('k')?;
    Some(thousands.parse::<f64>().ok()? / 1e3)
}

/// The result of `zstd -b` for these bytes as one block, at the level of frames, if there is a `zstd`.
fn rates_of_zstd(bytes: &[u8], full: bool) -> Option<(f64, f64)> {
    if !full {
        return None;
    }
    let file = std::env::temp_dir().join(format!("forebay-sealing-{}", std::process::id()));
    std::fs::write(&file, bytes).ok()?;
    let output = Command::new("zstd")
        .args(["-b1", "-i1", "-q"])
        .arg(&file)
        .output();
    let _ = std::fs::remove_file(&file);
    let output = String::from_utf8(output.ok()?.stdout).ok()?;
    let rates: Vec<&str> = output
        .lines()
        .rfind(|line| line.contains(" MB/s"))?
        .split(" MB/s")
        .collect();
    let rate = |at: usize| rates.get(at)?.split_whitespace().last()?.parse().ok();
    Some((rate(0)?, rate(1)?))
}

/// MB/s of an action over `bytes` bytes.
fn rate(bytes: usize, action: impl FnOnce()) -> f64 {
    bytes as f64 / 1e6 / time_of(action).as_secs_f64()
}

/// Processor time that an action takes on this thread.
fn time_of(action: impl FnOnce()) -> Duration {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let began = now();
    action();
    now() - began
}

/// Bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

/// Bytes that compress: lines of a log.
fn text(len: usize) -> Vec<u8> {
    let lines = (0_u64..).flat_map(|number| {
        let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        format!("{number:08} gateway wrote {word} bytes\n").into_bytes()
    });
    lines.take(len).collect()
}
