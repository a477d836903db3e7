//! Boundary sizes: of READ and WRITE, of names and paths, of handles, and of XDR itself.

use forebay_client::xdr::Encoder;
use forebay_conformance::Procedure::{self, *};
use forebay_conformance::call::{Set, Stable};
use forebay_conformance::{Call, Rejected, Status};

use crate::stack::{Client, Stack};
use crate::volume::{assert_bytes, pattern};

/// Largest READ and WRITE that FSINFO returns.
fn transfer_limits(root: &mut Client, top: &[u8]) -> (usize, usize) {
    let numbers = root.ok(&Call::fsinfo(top)).numbers;
    let limits = (numbers[0] as usize, numbers[3] as usize);
    assert_eq!(numbers[7], i64::MAX as u64, "maxfilesize");
    limits
}

/// Size of blocks of files in the bucket.
const BLOCK: u64 = 4 << 20;

#[test]
fn transfers_of_every_boundary_size_are_whole_at_every_boundary_of_blocks() {
    let mut stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let (read_limit, write_limit) = transfer_limits(&mut root, &top);
    assert_eq!(read_limit, write_limit);
    let file = root.file(&top, b"file");
    let mut expected = vec![0; 3 * BLOCK as usize];
    let sizes = [0, 1, 2, 3, 4, 5, write_limit - 1, write_limit];
    let places = |size: usize| {
        let size = size as u64;
        [
            0,
            1,
            BLOCK - 1,
            BLOCK,
            BLOCK.saturating_sub(size / 2),
            2 * BLOCK - size,
        ]
    };
    for (seed, size) in sizes.into_iter().enumerate() {
        for offset in places(size) {
            let data = pattern(seed as u64 * 8 + offset % 7, size);
            let results = root.ok(&Call::write(&file, offset, &data, Stable::Unstable));
            assert_eq!(results.numbers[0], size as u64);
            expected[offset as usize..][..size].copy_from_slice(&data);
        }
    }
    let length = root.attributes(&file).size as usize;
    assert_eq!(length as u64, 2 * BLOCK);
    let check = |root: &mut Client| {
        for size in sizes {
            for offset in places(size) {
                let results = root.ok(&Call::read(&file, offset, size as u32));
                let end = length.min(offset as usize + size);
                assert_bytes(&results.data, &expected[(offset as usize).min(end)..end]);
                assert_eq!(results.flags, [offset as usize + size >= length]);
            }
        }
    };
    check(&mut root);
    // The same from the bucket alone.
    stack.stop();
    stack.start();
    check(&mut stack.root());
}

#[test]
fn more_than_the_limit_is_moved_in_part_and_the_reply_says_how_much() {
    let stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let (read_limit, write_limit) = transfer_limits(&mut root, &top);
    let file = root.file(&top, b"file");
    let data = pattern(1, write_limit + 1);
    for stable in [Stable::Unstable, Stable::FileSync] {
        let results = root.ok(&Call::write(&file, 10, &data, stable));
        assert_eq!(results.numbers[0], write_limit as u64);
        assert!(results.numbers[1] >= stable as u64);
        assert_eq!(root.attributes(&file).size, 10 + write_limit as u64);
    }
    root.ok(&Call::write(
        &file,
        10 + write_limit as u64,
        b"end",
        Stable::Unstable,
    ));
    for count in [read_limit as u32 + 1, u32::MAX] {
        let results = root.ok(&Call::read(&file, 10, count));
        assert_bytes(&results.data, &data[..read_limit]);
        assert_eq!(results.flags, [false], "three bytes are left");
    }
}

#[test]
fn reads_around_the_end_say_where_it_is() {
    let stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let file = root.file(&top, b"file");
    let empty = root.file(&top, b"empty");
    root.ok(&Call::write(&file, 0, b"0123456789", Stable::Unstable));
    // Offset, count, expected bytes, expected end of file.
    let cases: [(u64, u32, &[u8], bool); 13] = [
        (0, 0, b"", false),
        (0, 9, b"012345678", false),
        (0, 10, b"0123456789", true),
        (0, 11, b"0123456789", true),
        (9, 0, b"", false),
        (9, 1, b"9", true),
        (9, 1 << 20, b"9", true),
        (10, 0, b"", true),
        (10, 1, b"", true),
        (11, 1, b"", true),
        (i64::MAX as u64, 1 << 20, b"", true),
        (1 << 63, 1, b"", true),
        (u64::MAX, u32::MAX, b"", true),
    ];
    for (offset, count, data, end) in cases {
        let results = root.ok(&Call::read(&file, offset, count));
        assert_eq!(
            (&results.data[..], &results.flags[..]),
            (data, &[end][..]),
            "{offset} {count}"
        );
        let results = root.ok(&Call::read(&empty, offset, count));
        assert_eq!((results.data.len(), results.flags), (0, vec![true]));
    }
}

#[test]
fn files_end_at_the_largest_size_and_not_before() {
    let mut stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let file = root.file(&top, b"file");
    const LARGEST: u64 = i64::MAX as u64;
    let write = |root: &mut Client, offset, data: &[u8]| {
        root.status(&Call::write(&file, offset, data, Stable::FileSync))
    };
    for (offset, data) in [
        (LARGEST, &b"x"[..]),
        (LARGEST - 1, b"xy"),
        (LARGEST + 1, b"x"),
        (LARGEST + 1, b""),
        (u64::MAX, b"x"),
        (u64::MAX, b""),
    ] {
        assert_eq!(write(&mut root, offset, data), Status::FBIG, "{offset}");
    }
    assert_eq!(root.attributes(&file).size, 0);
    assert_eq!(write(&mut root, LARGEST, b""), Status::OK);
    assert_eq!(root.attributes(&file).size, 0, "nothing was written");
    assert_eq!(write(&mut root, LARGEST - 3, b"end"), Status::OK);
    stack.stop();
    stack.start();
    let mut root = stack.root();
    assert_eq!(root.attributes(&file).size, LARGEST);
    let results = root.ok(&Call::read(&file, LARGEST - 4, 100));
    assert_eq!(
        (&results.data[..], &results.flags[..]),
        (&b"\0end"[..], &[true][..])
    );
    let results = root.ok(&Call::read(&file, 0, 3));
    assert_eq!(
        (&results.data[..], &results.flags[..]),
        (&[0; 3][..], &[false][..])
    );
    // COMMIT takes any range.
    for (offset, count) in [(0, 0), (0, u32::MAX), (LARGEST, 1), (u64::MAX, u32::MAX)] {
        root.ok(&Call::commit(&file, offset, count));
    }
}

#[test]
fn a_write_whose_count_is_not_the_length_of_its_data_is_garbage_and_does_nothing() {
    let stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let file = root.file(&top, b"file");
    for (count, data) in [
        (0, &b"x"[..]),
        (1, b""),
        (3, b"abcd"),
        (5, b"abcd"),
        (u32::MAX, b"abcd"),
    ] {
        let call = Call::new(Write, &file, |e| e.u64(0).u32s(&[count, 2]).opaque(data));
        assert_eq!(root.try_call(&call).unwrap_err(), Rejected::Garbage);
    }
    let call = Call::new(Write, &file, |e| e.u64(0).u32s(&[1, 3]).opaque(b"x"));
    assert_eq!(
        root.try_call(&call).unwrap_err(),
        Rejected::Garbage,
        "no such stable_how"
    );
    assert_eq!(root.attributes(&file).size, 0);
}

#[test]
fn names_of_one_and_of_255_bytes_of_any_kind_live_through_everything() {
    let mut stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let every: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    let names = [
        b"x".to_vec(),
        b" ".to_vec(),
        b"\xff".to_vec(),
        b"...".to_vec(),
        b".a".to_vec(),
        [&every[..], b"!"].concat(),
        vec![b'n'; 254],
    ];
    let mut handles = Vec::new();
    for name in &names {
        let new = [&name[..name.len() - 1], b"_"].concat();
        let file = root.file(&top, name);
        root.ok(&Call::rename((&top, name), (&top, &new)));
        assert_eq!(root.status(&Call::lookup(&top, name)), Status::NOENT);
        root.ok(&Call::link(&file, &top, name));
        root.ok(&Call::remove(&top, &new));
        handles.push(file);
    }
    stack.stop();
    stack.start();
    let mut root = stack.root();
    for (name, file) in names.iter().zip(&handles) {
        let found = root.ok(&Call::lookup(&top, name));
        assert_eq!(found.handle.as_ref(), Some(file));
    }
    let listed = root.ok(&Call::readdir(&top, 0, [0; 8], 1 << 16)).entries;
    let listed: Vec<_> = listed.into_iter().skip(2).map(|entry| entry.name).collect();
    assert_eq!(listed, names);
    let [dot, dots] = [&b"."[..], b".."].map(|name| root.ok(&Call::lookup(&top, name)).handle);
    assert_eq!((dot.as_ref(), dots.as_ref()), (Some(&top), Some(&top)));
    let below = root.directory(&top, b"below");
    assert_eq!(
        root.ok(&Call::lookup(&below, b"..")).handle,
        Some(top.clone())
    );
}

#[test]
fn symbolic_links_hold_up_to_4096_bytes_of_anything() {
    let mut stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let paths = [1, 2, 3, 4, 4095, 4096].map(|length| pattern(length as u64, length));
    let links = paths.each_ref().map(|path| {
        let name = format!("link-{}", path.len());
        root.made(&Call::symlink(&top, name.as_bytes(), &Set::default(), path))
    });
    for _ in 0..2 {
        for (link, path) in links.iter().zip(&paths) {
            assert_eq!(root.ok(&Call::readlink(link)).data, *path);
            assert_eq!(root.attributes(link).size, path.len() as u64);
        }
        stack.stop();
        stack.start();
        root = stack.root();
    }
}

#[test]
fn handles_of_every_length_are_none_but_those_that_were_given() {
    let stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let long = [&top[..], &[0; 64]].concat();
    for length in 0..=64 {
        for handle in [&long[..length], &vec![0; length], &vec![0xff; length]] {
            let status = root.status(&Call::getattr(handle));
            match handle == top {
                true => assert_eq!(status, Status::OK),
                false => assert_eq!(status, Status::BADHANDLE, "{length} bytes"),
            }
        }
    }
    for length in [65, 66, 68, 128] {
        let call = Call::getattr(&vec![0; length]);
        assert_eq!(root.try_call(&call).unwrap_err(), Rejected::Garbage);
    }
    for bit in 0..top.len() * 8 {
        let mut handle = top.clone();
        handle[bit / 8] ^= 1 << (bit % 8);
        let status = root.status(&Call::getattr(&handle));
        assert!(
            matches!(status, Status::STALE | Status::BADHANDLE),
            "bit {bit}"
        );
    }
}

#[test]
fn arguments_cut_off_anywhere_or_with_something_behind_them_are_garbage() {
    let stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    for procedure in Procedure::ALL {
        let name = format!("for-{procedure:?}");
        let object = root.object(procedure, &top, name.as_bytes());
        let before = root.attributes(&object);
        let whole = Call::any(procedure, &object, b"name", &top);
        let with = |arguments: &[u8]| Call {
            arguments: arguments.to_vec(),
            ..whole.clone()
        };
        for length in 0..whole.arguments.len() {
            let cut = with(&whole.arguments[..length]);
            assert_eq!(
                root.try_call(&cut).unwrap_err(),
                Rejected::Garbage,
                "{procedure:?} {length}"
            );
        }
        for rest in [&[0][..], &[0; 4], &[0; 400]] {
            let more = with(&[&whole.arguments[..], rest].concat());
            assert_eq!(
                root.try_call(&more).unwrap_err(),
                Rejected::Garbage,
                "{procedure:?}"
            );
        }
        assert_eq!(root.attributes(&object), before);
    }
}

#[test]
fn lengths_that_lie_are_garbage_and_padding_does_not_count() {
    let stack = Stack::new();
    let mut root = stack.root();
    let top = root.top();
    let file = root.file(&top, b"name!");
    // A name whose length is more than the bytes that follow, up to the largest value of 32 bits.
    for length in [9, 12, 1 << 20, 1 << 31, u32::MAX - 3, u32::MAX] {
        let call = Call::new(Lookup, &top, |e| e.u32s(&[length]).fixed(b"name!"));
        assert_eq!(
            root.try_call(&call).unwrap_err(),
            Rejected::Garbage,
            "{length}"
        );
    }
    // A handle with such a length, as the first argument.
    for length in [33, 64, 65, u32::MAX] {
        let call = Call {
            procedure: Getattr,
            handles: Vec::new(),
            arguments: Encoder::default().u32s(&[length]).fixed(&top).0,
        };
        assert_eq!(
            root.try_call(&call).unwrap_err(),
            Rejected::Garbage,
            "{length}"
        );
    }
    // RFC 4506 has zeros there; other padding means the same.
    let call = Call::new(Lookup, &top, |e| e.u32s(&[5]).fixed(b"name!\xff\x01\x02"));
    assert_eq!(root.ok(&call).handle, Some(file.clone()));
    // A truth value is 0 or 1.
    let call = Call::new(Setattr, &file, |e| e.u32s(&[0, 0, 0, 0, 0, 0, 2]));
    assert_eq!(root.try_call(&call).unwrap_err(), Rejected::Garbage);
}
