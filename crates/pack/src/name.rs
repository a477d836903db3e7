//! Names of packs in the bucket.

use forebay_types::PackId;

/// Prefix, in a volume's prefix, of all packs. Everything below it is a pack.
pub const PACK_PREFIX: &str = "packs";

/// Name of a pack's object below the volume's prefix, for instance
/// `packs/2a/000000000000012a.pack`. The lowest byte of the number comes first: packs are numbered
/// in sequence, and stores spread load by the start of names, as folders spread their entries.
pub fn object_name(pack: PackId) -> String {
    format!("{PACK_PREFIX}/{:02x}/{pack}.pack", pack.0 & 0xff)
}

/// The pack that has this name below the volume's prefix; `None` if [`object_name`] returns that name for no pack.
pub fn parse_object_name(name: &str) -> Option<PackId> {
    let (_, file) = name.rsplit_once('/')?;
    let pack = PackId(u64::from_str_radix(file.strip_suffix(".pack")?, 16).ok()?);
    (object_name(pack) == name).then_some(pack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_spread_by_their_last_byte() {
        assert_eq!(object_name(PackId(1)), "packs/01/0000000000000001.pack");
        assert_eq!(object_name(PackId(0x12a)), "packs/2a/000000000000012a.pack");
        for id in [0, 1, 0xff, 0x100, u64::MAX] {
            assert_eq!(
                parse_object_name(&object_name(PackId(id))),
                Some(PackId(id))
            );
        }
    }

    #[test]
    fn names_that_no_pack_has_are_not_read() {
        for name in [
            "",
            "packs/01/",
            "packs/02/0000000000000001.pack",
            "packs/01/1.pack",
            "packs/01/+000000000000001.pack",
            "packs/01/0000000000000001.pack.tmp",
            "other/01/0000000000000001.pack",
            "packs/aa/00000000000000AA.pack",
        ] {
            assert_eq!(parse_object_name(name), None, "{name}");
        }
    }
}
