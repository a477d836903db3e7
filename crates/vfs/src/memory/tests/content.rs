//! Scenarios of READ, WRITE and COMMIT.

use super::*;

const FAR: u64 = 1 << 50;

#[test]
fn a_sparse_file_reads_zeros_and_takes_what_was_written() {
    let fs = MemoryFileSystem::new();
    let file = fs.file(Inode::ROOT, "sparse");
    fs.put(file, FAR, b"end");
    assert_eq!(fs.attributes(file).size, FAR + 3);
    assert!(fs.attributes(file).used < 64 << 10);
    assert_eq!(fs.get(file, FAR - 2, 100), b"\0\0end");
    assert_eq!(fs.get(file, 5, 200_000), vec![0; 200_000]);
}

#[test]
fn shrinking_and_growing_brings_no_old_bytes_back() {
    let fs = MemoryFileSystem::new();
    let file = fs.file(Inode::ROOT, "file");
    fs.put(file, 0, &[7; 200_000]);
    fs.set(file, size(100_001));
    fs.set(file, size(200_000));
    let bytes = fs.get(file, 0, 200_000);
    assert_eq!(bytes[..100_001], [7; 100_001]);
    assert_eq!(bytes[100_001..], [0; 99_999]);
    // Nor do bytes reappear after a write behind the end of the truncated chunk.
    fs.put(file, 100_003, &[8]);
    assert_eq!(fs.get(file, 100_000, 5), [7, 0, 0, 8, 0]);
}

#[test]
fn eof_is_told_with_the_last_byte_and_past_it() {
    let fs = MemoryFileSystem::new();
    let file = fs.file(Inode::ROOT, "file");
    fs.put(file, 0, b"0123456789");
    let eof = |offset, count| now(fs.read(&ROOT, file, offset, count)).unwrap().eof;
    assert!(!eof(0, 9));
    assert!(eof(0, 10));
    assert!(eof(9, 1));
    assert!(eof(10, 0));
    assert!(eof(u64::MAX, u32::MAX));
    assert_eq!(fs.get(file, u64::MAX, 10), b"");
}

#[test]
fn bytes_that_were_read_stay_while_the_file_is_rewritten_and_removed() {
    let fs = MemoryFileSystem::new();
    let file = fs.file(Inode::ROOT, "file");
    fs.put(file, 0, &[1; 1 << 20]);
    let read = now(fs.read(&ROOT, file, 0, 1 << 20)).unwrap();
    fs.put(file, 0, &[2; 1 << 20]);
    now(fs.remove(&ROOT, Inode::ROOT, b"file")).unwrap();
    assert_eq!(read.data.concat(), vec![1; 1 << 20]);
}

#[test]
fn a_full_volume_refuses_what_needs_room_and_takes_the_rest() {
    let fs = MemoryFileSystem::with_capacity(128 << 10);
    let free = || now(fs.statistics()).unwrap().free_bytes;
    let file = fs.file(Inode::ROOT, "file");
    fs.put(file, 0, &[1; 128 << 10]);
    assert_eq!(free(), 0);
    let refused = now(fs.write(&ROOT, file, 128 << 10, b"x", Stability::Unstable));
    assert_eq!(refused, Err(Error::NoSpace));
    assert_eq!(fs.attributes(file).size, 128 << 10);

    fs.put(file, 5, &[2; 1000]);
    fs.set(file, size(64 << 10));
    assert_eq!(free(), 64 << 10);
    assert_eq!(fs.attributes(file).used, 64 << 10);
    now(fs.remove(&ROOT, Inode::ROOT, b"file")).unwrap();
    assert_eq!(free(), 128 << 10);
}

#[test]
fn a_linked_file_keeps_its_room_until_its_last_name_is_gone() {
    let fs = MemoryFileSystem::with_capacity(1 << 20);
    let file = fs.file(Inode::ROOT, "one");
    fs.put(file, 0, &[1; 4096]);
    now(fs.link(&ROOT, file, Inode::ROOT, b"other")).unwrap();
    now(fs.remove(&ROOT, Inode::ROOT, b"one")).unwrap();
    assert_eq!(fs.get(file, 0, 1), [1]);
    assert_eq!(now(fs.statistics()).unwrap().free_bytes, (1 << 20) - 4096);
    now(fs.remove(&ROOT, Inode::ROOT, b"other")).unwrap();
    assert_eq!(now(fs.statistics()).unwrap().free_bytes, 1 << 20);
}

#[test]
fn sizes_beyond_a_signed_offset_are_too_large() {
    let fs = MemoryFileSystem::new();
    let file = fs.file(Inode::ROOT, "file");
    let max = i64::MAX as u64;
    for offset in [max, u64::MAX] {
        let refused = now(fs.write(&ROOT, file, offset, b"x", Stability::Unstable));
        assert_eq!(refused, Err(Error::FileTooLarge));
    }
    assert_eq!(
        now(fs.setattr(&ROOT, file, &size(max + 1), None)),
        Err(Error::FileTooLarge)
    );
    fs.put(file, max - 1, b"x");
    assert_eq!(fs.get(file, max - 2, 10), b"\0x");
}

#[test]
fn only_regular_files_have_content() {
    let fs = MemoryFileSystem::new();
    let set = SetAttributes::default();
    let fifo = now(fs.make(&ROOT, Inode::ROOT, b"fifo", NewNode::Fifo, &set)).unwrap();
    let fifo = fifo.attributes.inode;
    for (inode, error) in [(Inode::ROOT, Error::IsDirectory), (fifo, Error::Invalid)] {
        assert_eq!(now(fs.read(&ROOT, inode, 0, 1)), Err(error));
        assert_eq!(
            now(fs.write(&ROOT, inode, 0, b"x", Stability::Unstable)),
            Err(error)
        );
        assert_eq!(now(fs.commit(&ROOT, inode, 0, 0)).map(drop), Err(error));
        assert_eq!(now(fs.setattr(&ROOT, inode, &size(1), None)), Err(error));
    }
}

#[test]
fn a_write_of_nothing_changes_nothing() {
    let fs = MemoryFileSystem::new();
    let file = fs.file(Inode::ROOT, "file");
    let before = fs.attributes(file);
    fs.put(file, 1000, b"");
    assert_eq!(fs.attributes(file), before);
}

#[test]
fn writes_and_commits_of_one_life_bear_one_verifier() {
    let fs = MemoryFileSystem::new();
    let file = fs.file(Inode::ROOT, "file");
    let write = now(fs.write(&ROOT, file, 0, b"x", Stability::Unstable)).unwrap();
    let (change, verifier) = now(fs.commit(&ROOT, file, 0, 0)).unwrap();
    assert_eq!(write.stability, Stability::Unstable);
    assert_eq!(write.verifier, verifier);
    assert_eq!(change.after, write.change.after);
}
