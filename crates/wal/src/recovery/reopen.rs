//! Reopens a recovered log for writing.

use forebay_types::{Lsn, to_usize};

use super::{LogFile, Recovery, Stretch, Tail};
use crate::error::OpenError;
use crate::layout::{RECORD_HEADER, SEGMENT_HEADER, SIZE_BYTES, SegmentNumber};
use crate::options::Options;
use crate::segment::{FileName, Retained, Spare};
use crate::state::{Closing, Settled, State, WrittenBack};
use crate::storage::Storage;

/// Cleans up the folder and returns the state from which the log continues.
pub(super) fn state(recovery: Recovery, options: Options) -> Result<State, OpenError> {
    options.check()?;
    check_owner(&recovery, &options)?;
    // Must come first: if a power cut lost the end of the replayed records later, the new segment would continue
    // records that no longer exist.
    make_durable(&recovery)?;
    forget_halves(&recovery)?;
    forget_behind(&recovery)?;
    let put_away = put_away_cut_off(&recovery)?;

    let Recovery {
        storage,
        from,
        chain,
        older,
        void,
        discarded,
        end,
        numbers,
        keys,
        ..
    } = recovery;
    let mut retained = std::collections::VecDeque::new();
    let mut spent: Vec<_> = older
        .iter()
        .map(|segment| segment.file.name.text())
        .collect();
    let mut files = put_away;
    files.extend(void.into_iter().map(|file| (file.name.text(), file.bytes)));
    spent.extend(discarded.iter().map(|file| file.name.text()));
    files.extend(discarded.iter().map(|file| (file.name.text(), file.bytes)));
    let begun = older
        .iter()
        .chain(chain.iter().map(|stretch| &stretch.segment));
    let last = begun
        .map(|segment| segment.header)
        .max_by_key(|header| header.number);
    let last_seal = last.and_then(|header| header.seal);
    let last_key = last_seal.map(|seal| seal.salt).unwrap_or_default();
    let last = last.map_or(SegmentNumber::NONE, |header| header.number);
    files.extend(
        older
            .into_iter()
            .map(|segment| (segment.file.name.text(), segment.file.bytes)),
    );
    for stretch in chain {
        let (file, header) = (stretch.segment.file, stretch.segment.header);
        if stretch.end <= from {
            spent.push(file.name.text());
            files.push((file.name.text(), file.bytes));
            continue;
        }
        retained.push_back(Retained {
            name: file.name.text(),
            header,
            bytes: file.bytes,
            end: Some(stretch.end),
            appends: 0,
            unwritten: None,
            header_flushed: true,
            sealer: None,
            readers: 0,
        });
    }
    for name in &spent {
        forget_life(&*storage, name)?;
    }
    let mut spares = Vec::new();
    // Where headers contradict names, a file may have been renamed over another one: only the last one still exists.
    let files: std::collections::BTreeMap<_, _> = files.into_iter().collect();
    for (name, bytes) in files {
        if bytes == options.segment_bytes {
            spares.push(Spare {
                name,
                bytes,
                memory: None,
            });
        } else {
            storage
                .remove(&name)
                .map_err(OpenError::io(format!("remove {name}")))?;
        }
    }
    let retained_bytes: u64 = retained
        .iter()
        .map(|segment: &Retained| segment.bytes)
        .sum();
    let spare_bytes: u64 = spares.iter().map(|spare| spare.bytes).sum();
    Ok(State {
        flush_backlog: options.flush_backlog(),
        written_back: WrittenBack::new(&options, end),
        options,
        next: end,
        complete: end,
        flushed: end,
        durable: end,
        // `make_durable` has flushed them, and nothing is stored into their segments again.
        settled: Settled::at(end),
        keys,
        in_flight: Default::default(),
        retained,
        last,
        last_key,
        prepared: Default::default(),
        ahead: 1,
        spares,
        unmap: Vec::new(),
        file_bytes: retained_bytes + spare_bytes,
        numbers,
        gathering: None,
        flushing_below: None,
        flushed_appends: 0,
        preparing: false,
        restarting: false,
        recycle_below: Lsn::ZERO,
        failure: None,
        shortage: None,
        try_again: false,
        closing: Closing::Open,
        for_complete: Default::default(),
        for_durable: Default::default(),
        for_room: Default::default(),
        for_failure: Default::default(),
        stats: Default::default(),
    })
}

fn check_owner(recovery: &Recovery, options: &Options) -> Result<(), OpenError> {
    if options.volume != recovery.volume {
        return Err(OpenError::Options(format!(
            "the log was scanned for volume {} and is opened for {}",
            recovery.volume, options.volume
        )));
    }
    match recovery.epoch {
        Some(found) if found > options.epoch => Err(OpenError::NewerEpoch {
            found,
            ours: options.epoch,
        }),
        _ => Ok(()),
    }
}

/// Flushes the replayed records, which may so far be in the page cache only. They are written again before that: a
/// flush of the previous process may have failed, and the system then regards pages as written that are not.
fn make_durable(recovery: &Recovery) -> Result<(), OpenError> {
    let known = recovery.durable.max(recovery.from);
    // A sealed segment names the one before it, so that one must not be lost even if it has no records.
    let is_named =
        |stretch: &&Stretch| stretch.segment.header.seal.is_some() && stretch.start == stretch.end;
    let needed = |stretch: &&Stretch| stretch.end > known || is_named(stretch);
    for stretch in recovery.chain.iter().filter(needed) {
        let name = stretch.segment.file.name.text();
        recovery
            .storage
            .open(&name)
            .and_then(|memory| {
                let header = stretch.segment.header;
                let position =
                    |lsn: Lsn| SEGMENT_HEADER + to_usize(lsn.0.saturating_sub(header.base.0));
                memory.rewrite(0..SEGMENT_HEADER);
                memory.rewrite(position(stretch.start)..position(stretch.end));
                memory.flush(0..memory.memory().len())
            })
            .map_err(OpenError::io(format!("flush {name}")))?;
    }
    Ok(())
}

/// Clears the header of the record at the end that a power cut has left in part, and of the first record in each
/// segment whose own header the power cut lost. The scan has judged them with the knowledge of how their writer
/// ended; after a kill of the next writer they would be taken for damage. Not flushed: a power cut that restores them
/// is known to be a power cut.
fn forget_halves(recovery: &Recovery) -> Result<(), OpenError> {
    let last = recovery.chain.last().map(|last| {
        let end = to_usize(last.end.0.saturating_sub(last.segment.header.base.0));
        (&last.segment.file, end)
    });
    let last = last.filter(|_| recovery.tail != Tail::Clean);
    let kept = matches!(recovery.tail, Tail::Damaged { .. });
    let headless = recovery.headless.iter().filter(|_| !kept);
    let headless = headless.map(|file| (file, 0));
    for (file, at) in last.into_iter().chain(headless) {
        let name = file.name.text();
        let memory = recovery.storage.open(&name);
        let memory = memory.map_err(OpenError::io(format!("open {name}")))?;
        memory.clear(SEGMENT_HEADER + at..SEGMENT_HEADER + at + RECORD_HEADER);
        if kept {
            // So that the message about the cut is logged only once.
            memory.clear(SIZE_BYTES);
        }
    }
    Ok(())
}

/// Clears the whole records behind the end, on stable storage. Replay begins at the published LSN, wherever the records
/// before it are: new records may reach exactly to one of these, be published, and be lost in a power cut together with
/// the header of their segment, since the bucket does not wait for the disk.
fn forget_behind(recovery: &Recovery) -> Result<(), OpenError> {
    let last = recovery.chain.last();
    let behind = recovery.behind.zip(last);
    let is_damaged = matches!(recovery.tail, Tail::Damaged { .. });
    let Some((behind, last)) = behind.filter(|_| !is_damaged) else {
        return Ok(());
    };
    let name = last.segment.file.name.text();
    let base = last.segment.header.base;
    let position = |lsn: Lsn| SEGMENT_HEADER + to_usize(lsn.0.saturating_sub(base.0));
    let records = position(last.end)..position(behind);
    let memory = recovery.storage.open(&name);
    let cleared = memory.and_then(|memory| {
        memory.clear(records.clone());
        memory.flush(records)
    });
    cleared.map_err(OpenError::io(format!("clear the end of {name}")))
}

/// Clears the header of a segment of which nothing is replayed. In a folder whose headers contradict one another it
/// would otherwise become part of the log as soon as the segment that replaced it is reused. Not flushed, since a
/// crash does not leave contradicting headers.
fn forget_life(storage: &dyn Storage, name: &str) -> Result<(), OpenError> {
    let memory = storage.open(name);
    memory
        .map_err(OpenError::io(format!("open {name}")))?
        .clear(0..SEGMENT_HEADER + RECORD_HEADER);
    Ok(())
}

/// Makes sure, durably, that no segment after the end is ever taken for a part of the log. Returns the files that can
/// be reused: all, unless the log is damaged.
fn put_away_cut_off(recovery: &Recovery) -> Result<Vec<(String, u64)>, OpenError> {
    let cut_off = recovery.cut_off.iter().map(|segment| &segment.file);
    if !matches!(recovery.tail, Tail::Damaged { .. }) {
        let headless = recovery
            .headless
            .iter()
            .map(|file| (file.name.text(), file.bytes));
        let renamed = cut_off.map(|file| {
            let name = FileName::Spare(file.name.number()).text();
            rename(recovery, file, &name).map(|()| (name, file.bytes))
        });
        return headless.map(Ok).chain(renamed).collect();
    }
    for file in cut_off.chain(&recovery.headless) {
        rename(
            recovery,
            file,
            &format!("{:016x}.aside", file.name.number().0),
        )?;
    }
    Ok(Vec::new())
}

fn rename(recovery: &Recovery, file: &LogFile, new_name: &str) -> Result<(), OpenError> {
    let name = file.name.text();
    recovery
        .storage
        .rename(&name, new_name)
        .map_err(OpenError::io(format!("rename {name} to {new_name}")))
}
