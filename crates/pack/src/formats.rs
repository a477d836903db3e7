//! Formats whose bytes are compressed already, recognized by the first bytes of a file.
//!
//! The start of a file is a hint and no proof: a container may hold uncompressed contents. So no frame is left
//! uncompressed for this reason alone.

/// Maximum number of bytes of a file that [`is_compressed`] reads.
pub const HEAD_LEN: usize = 16;

/// Offset in the file, and the bytes there.
type Mark = (usize, &'static [u8]);

/// The formats: a file has a format if it has all of its marks. Formats with the same start share one row.
const FORMATS: &[(&str, &[Mark])] = &[
    // Compressed files and archives.
    ("gzip", &[(0, b"\x1f\x8b\x08")]),
    ("zstd", &[(0, b"\x28\xb5\x2f\xfd")]),
    ("xz", &[(0, b"\xfd7zXZ\0")]),
    ("bzip2", &[(0, b"BZh"), (4, b"1AY&SY")]),
    ("lz4", &[(0, b"\x04\x22\x4d\x18")]),
    ("lzip", &[(0, b"LZIP\x01")]),
    ("lzop", &[(0, b"\x89LZO\0\r\n\x1a\n")]),
    ("snappy", &[(0, b"\xff\x06\0\0sNaPpY")]),
    ("zip, jar, docx, odt, apk, epub", &[(0, b"PK\x03\x04")]),
    ("7z", &[(0, b"7z\xbc\xaf\x27\x1c")]),
    ("rar", &[(0, b"Rar!\x1a\x07")]),
    ("cab", &[(0, b"MSCF\0\0\0\0")]),
    ("rpm", &[(0, b"\xed\xab\xee\xdb")]),
    ("squashfs", &[(0, b"hsqs")]),
    // Pictures.
    ("png", &[(0, b"\x89PNG\r\n\x1a\n")]),
    ("jpeg", &[(0, b"\xff\xd8\xff")]),
    ("gif", &[(0, b"GIF87a")]),
    ("gif", &[(0, b"GIF89a")]),
    ("webp", &[(0, b"RIFF"), (8, b"WEBP")]),
    ("jpeg 2000", &[(0, b"\0\0\0\x0cjP  \r\n\x87\n")]),
    ("jpeg xl", &[(0, b"\0\0\0\x0cJXL \r\n\x87\n")]),
    ("jpeg xl", &[(0, b"\xff\x0a")]),
    // Films and sound.
    ("mp4, mov, heic, avif, m4a", &[(4, b"ftyp")]),
    ("mkv, webm", &[(0, b"\x1a\x45\xdf\xa3")]),
    ("avi", &[(0, b"RIFF"), (8, b"AVI ")]),
    ("flv", &[(0, b"FLV\x01")]),
    ("wmv, wma", &[(0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11")]),
    ("mpeg program stream", &[(0, b"\0\0\x01\xba")]),
    ("mp3", &[(0, b"ID3")]),
    ("mp3", &[(0, b"\xff\xfb")]),
    ("mp3", &[(0, b"\xff\xf3")]),
    ("mp3", &[(0, b"\xff\xf2")]),
    ("aac", &[(0, b"\xff\xf1")]),
    ("aac", &[(0, b"\xff\xf9")]),
    ("ogg, opus", &[(0, b"OggS\0")]),
    ("flac", &[(0, b"fLaC")]),
    // Fonts.
    ("woff", &[(0, b"wOFF")]),
    ("woff2", &[(0, b"wOF2")]),
    // Encrypted data do not compress either.
    ("age", &[(0, b"age-encryption.o")]),
    ("openssl enc", &[(0, b"Salted__")]),
    ("luks", &[(0, b"LUKS\xba\xbe")]),
];

/// Whether a file that begins with `head` seems to be compressed already. [`HEAD_LEN`] bytes are enough; with fewer
/// bytes, fewer formats are recognized.
pub fn is_compressed(head: &[u8]) -> bool {
    let has = |(at, bytes): &Mark| head.get(*at..).is_some_and(|rest| rest.starts_with(bytes));
    FORMATS.iter().any(|(_, marks)| marks.iter().all(has))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_these_formats_are_recognised() {
        // The first bytes of real files, as the named programs write them.
        let files: [(&str, &[u8]); 20] = [
            (
                "gzip",
                b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x4b\x4c\x4a\x06\x00\xc2",
            ),
            ("bzip2", b"BZh91AY&SY\x64\x8c\xbb\x73\x00\x00"),
            (
                "xz",
                b"\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01",
            ),
            (
                "zstd",
                b"\x28\xb5\x2f\xfd\x24\x03\x19\x00\x00\x61\x62\x63\x9d\xf7\x0e\x44",
            ),
            (
                "lz4",
                b"\x04\x22\x4d\x18\x64\x40\xa7\x03\x00\x00\x80\x61\x62\x63\x00\x00",
            ),
            (
                "zip",
                b"PK\x03\x04\x14\x00\x00\x00\x08\x00\x76\x76\x76\x5b\xc2\x41",
            ),
            (
                "7z",
                b"7z\xbc\xaf\x27\x1c\x00\x04\x5b\x38\xbe\xf9\x07\x00\x00\x00",
            ),
            (
                "rar 5",
                b"Rar!\x1a\x07\x01\x00\x33\x92\xb5\xe5\x0a\x01\x05\x06",
            ),
            ("png", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"),
            (
                "jpeg",
                b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01",
            ),
            ("gif", b"GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff"),
            ("webp", b"RIFF\x24\x00\x00\x00WEBPVP8 "),
            ("mp4", b"\x00\x00\x00\x20ftypisom\x00\x00\x02\x00"),
            ("mov", b"\x00\x00\x00\x14ftypqt  \x00\x00\x02\x00"),
            (
                "webm",
                b"\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01\x42\xf7\x81\x01\x42\xf2\x81",
            ),
            (
                "mp3 with tags",
                b"ID3\x04\x00\x00\x00\x00\x00\x23TSSE\x00\x00",
            ),
            (
                "mp3",
                b"\xff\xfb\x90\x64\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
            ),
            (
                "ogg",
                b"OggS\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x7a\x3d",
            ),
            (
                "flac",
                b"fLaC\x00\x00\x00\x22\x10\x00\x10\x00\x00\x00\x00\x00",
            ),
            (
                "woff2",
                b"wOF2\x00\x01\x00\x00\x00\x00\x4c\xb0\x00\x0f\x00\x00",
            ),
        ];
        for (name, head) in files {
            assert!(is_compressed(head), "{name}");
        }
    }

    #[test]
    fn files_of_other_formats_are_not() {
        let files: [(&str, &[u8]); 11] = [
            ("text", b"It takes what co"),
            ("zeros", &[0; HEAD_LEN]),
            ("tar", b"a name\0\0\0\0\0\0\0\0\0\0"),
            ("elf", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0"),
            ("sqlite", b"SQLite format 3\0"),
            ("pdf", b"%PDF-1.7\n%\xb5\xb5\xb5\xb5\n1"),
            ("wav", b"RIFF\x24\x08\0\0WAVEfmt "),
            ("bmp", b"BM\x36\0\x0c\0\0\0\0\0\x36\0\0\0\x28\0"),
            ("utf-16", b"\xff\xfea\0b\0c\0d\0e\0f\0g\0"),
            ("qcow2", b"QFI\xfb\0\0\0\x03\0\0\0\0\0\0\0\0"),
            ("nothing", b""),
        ];
        for (name, head) in files {
            assert!(!is_compressed(head), "{name}");
        }
    }

    #[test]
    fn every_row_is_found_by_what_it_says_and_by_no_byte_less() {
        for (name, marks) in FORMATS {
            let end = marks
                .iter()
                .map(|(at, bytes)| at + bytes.len())
                .max()
                .unwrap();
            assert!(end <= HEAD_LEN, "{name}");
            let mut head = vec![b'.'; end];
            for (at, bytes) in *marks {
                head[*at..*at + bytes.len()].copy_from_slice(bytes);
            }
            assert!(is_compressed(&head), "{name}");
            assert!(!is_compressed(&head[..end - 1]), "{name}");
            for (at, bytes) in *marks {
                let mut other = head.clone();
                other[*at + bytes.len() - 1] ^= 0x55;
                assert!(!is_compressed(&other), "{name}");
            }
        }
    }
}
