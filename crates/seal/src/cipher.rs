//! AES-256-GCM, and the only module that depends on its implementation.
//!
//! The crate `ring`, which TLS depends on as well, uses the processor's instructions for AES and carry-less
//! multiplication if it finds them at run time (AES-NI, VAES and PCLMULQDQ; the ARMv8 ones), and constant-time code
//! elsewhere. It does not wipe its expanded keys, so this module does. Any other AES-256-GCM gives the same bytes, so a
//! change of the implementation affects only this file; a test compares the output with that of another one.

use std::mem::MaybeUninit;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroize;

use crate::Secret;

/// Length of a tag, in bytes.
pub const TAG_LEN: usize = 16;

/// Authenticates sealed bytes, and the bytes that accompany them.
pub type Tag = [u8; TAG_LEN];

pub(crate) const NONCE_LEN: usize = 12;

/// The bytes were not sealed with this key, for this place: they were changed, moved, swapped for
/// others, or sealed with another key. The cases cannot be distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes do not authenticate: they were not sealed with this key for this place")]
pub struct Forged;

/// An expanded key. It lies on the heap, so that moving it leaves no copies behind, and is wiped when it is dropped.
pub(crate) struct Cipher {
    /// Initialized until it is wiped.
    expanded: Box<MaybeUninit<LessSafeKey>>,
    #[cfg(test)]
    key: [u8; crate::SECRET_LEN],
}

// To dispose of an expanded key, wiping its memory is enough.
const _: () = assert!(!std::mem::needs_drop::<LessSafeKey>());

impl Cipher {
    pub(crate) fn new(key: &Secret) -> Cipher {
        let unbound = UnboundKey::new(&AES_256_GCM, key.expose());
        let unbound = unbound.expect("a key of AES-256 has 32 bytes");
        Cipher {
            expanded: Box::new(MaybeUninit::new(LessSafeKey::new(unbound))),
            #[cfg(test)]
            key: *key.expose(),
        }
    }

    fn expanded(&self) -> &LessSafeKey {
        // SAFETY: `new` has initialized it, and only `drop` wipes it, which is not called while there are references to
        // `self`.
        unsafe { self.expanded.assume_init_ref() }
    }

    /// Seals `buffer` in place. `also` is authenticated with it and not stored.
    ///
    /// # Panics
    ///
    /// When the buffer has more than 64 GiB, sixteen times what fits a pack.
    pub(crate) fn seal(&self, nonce: &[u8; NONCE_LEN], also: &[u8], buffer: &mut [u8]) -> Tag {
        #[cfg(test)]
        used::note(self.key, *nonce);
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let sealed = self
            .expanded()
            .seal_in_place_separate_tag(nonce, Aad::from(also), buffer);
        let mut tag = [0; TAG_LEN];
        tag.copy_from_slice(sealed.expect("the bytes are fewer than 64 GiB").as_ref());
        tag
    }

    /// Opens `buffer` in place. If that fails, its contents must not be used.
    pub(crate) fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        also: &[u8],
        buffer: &mut [u8],
        tag: &Tag,
    ) -> Result<(), Forged> {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.expanded().open_in_place_separate_tag(
            nonce,
            Aad::from(also),
            (*tag).into(),
            buffer,
            0..,
        );
        opened.map(drop).map_err(|_| Forged)
    }
}

impl Drop for Cipher {
    fn drop(&mut self) {
        // All of its bytes, since it counts as uninitialized memory.
        self.expanded.zeroize();
    }
}

/// The pairs of key and nonce used on this thread, for the tests that no pair is used twice.
#[cfg(test)]
pub(crate) mod used {
    use std::cell::RefCell;

    use super::NONCE_LEN;
    use crate::SECRET_LEN;

    type Pair = ([u8; SECRET_LEN], [u8; NONCE_LEN]);

    thread_local! {
        static PAIRS: RefCell<Vec<Pair>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn note(key: [u8; SECRET_LEN], nonce: [u8; NONCE_LEN]) {
        PAIRS.with_borrow_mut(|pairs| pairs.push((key, nonce)));
    }

    /// All pairs since the last call.
    pub(crate) fn take() -> Vec<Pair> {
        PAIRS.take()
    }
}

#[cfg(test)]
mod tests {
    use aes_gcm::aead::{AeadInOut, KeyInit};
    use aes_gcm::{Aes256Gcm, Nonce};

    use super::{Cipher, Forged, NONCE_LEN, TAG_LEN, Tag};
    use crate::{Secret, hex};

    fn cipher(key: u8) -> Cipher {
        Cipher::new(&Secret::take(&mut [key; 32]))
    }

    /// Test case 16 of the specification of GCM (McGrew and Viega).
    #[test]
    fn the_published_vector_is_met() {
        let key = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308";
        let raw = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
                   1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39";
        let also = hex::decode("feedfacedeadbeeffeedfacedeadbeefabaddad2").unwrap();
        let nonce = hex::decode_array("cafebabefacedbaddecaf888").unwrap();
        let mut buffer = hex::decode(raw).unwrap();
        let cipher = Cipher::new(&Secret::take(&mut hex::decode_array(key).unwrap()));
        let tag = cipher.seal(&nonce, &also, &mut buffer);
        assert_eq!(
            hex::encode(&buffer),
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
             8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
        );
        assert_eq!(hex::encode(&tag), "76fc6ece0f4e1768cddf8853bb2d551b");
        assert_eq!(cipher.open(&nonce, &also, &mut buffer, &tag), Ok(()));
        assert_eq!(hex::encode(&buffer), raw);
    }

    #[test]
    fn another_implementation_gives_the_same_bytes() {
        let other = Aes256Gcm::new(&[3; 32].into());
        for len in [0_usize, 1, 15, 16, 17, 63, 64, 65, 255, 4096, 100_003] {
            let raw: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
            let nonce = [len as u8; NONCE_LEN];
            let (mut ours, mut theirs) = (raw.clone(), raw);
            let tag = cipher(3).seal(&nonce, b"also", &mut ours);
            let nonce = <&Nonce<_>>::from(&nonce);
            let other = other.encrypt_inout_detached(nonce, b"also", theirs.as_mut_slice().into());
            assert_eq!(
                (ours, &tag[..]),
                (theirs, other.unwrap().as_slice()),
                "{len}"
            );
        }
    }

    #[test]
    fn whatever_is_changed_does_not_authenticate() {
        let (cipher, nonce) = (cipher(1), [2; NONCE_LEN]);
        let mut sealed = b"raw bytes".to_vec();
        let tag = cipher.seal(&nonce, b"also", &mut sealed);
        let open = |cipher: &Cipher, nonce, also: &[u8], sealed: &[u8], tag: &Tag| {
            cipher.open(nonce, also, &mut sealed.to_vec(), tag)
        };
        assert_eq!(open(&cipher, &nonce, b"also", &sealed, &tag), Ok(()));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            let opened = open(&cipher, &nonce, b"also", &changed, &tag);
            assert_eq!(opened, Err(Forged), "byte {at}");
        }
        for at in 0..TAG_LEN {
            let mut changed = tag;
            changed[at] ^= 0x80;
            let opened = open(&cipher, &nonce, b"also", &sealed, &changed);
            assert_eq!(opened, Err(Forged), "byte {at} of the tag");
        }
        let other = self::cipher(2);
        assert_eq!(open(&other, &nonce, b"also", &sealed, &tag), Err(Forged));
        let other = [3; NONCE_LEN];
        assert_eq!(open(&cipher, &other, b"also", &sealed, &tag), Err(Forged));
        assert_eq!(open(&cipher, &nonce, b"Also", &sealed, &tag), Err(Forged));
    }
}
