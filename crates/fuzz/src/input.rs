//! Takes decisions and pieces off the front of an input. An input that ends too early continues with zeros, so that
//! every byte string is a valid input.

/// The rest of an input.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// An input from its first byte on.
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    /// Whether no byte is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes that are left.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Takes at most `count` bytes.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Takes exactly `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.take(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    /// Takes a byte.
    pub fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    /// Takes a number of two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Takes a number of four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// Takes a number of eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Takes a piece: its length in two bytes, then that number of bytes.
    pub fn piece(&mut self) -> &'a [u8] {
        let count = self.u16();
        self.take(count.into())
    }
}

/// Appends a piece for [`Input::piece`]. Only for seeds: `piece` must have less than 64 KiB.
pub fn put_piece(out: &mut Vec<u8>, piece: &[u8]) {
    out.extend((piece.len() as u16).to_le_bytes());
    out.extend(piece);
}

/// Polls a future that never waits.
///
/// # Panics
/// If it does wait, which would last for ever.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("it waits, and nothing would wake it"),
    }
}
