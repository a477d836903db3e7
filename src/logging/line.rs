//! One message, one line: a text that a client chose (names of files, of clients, of owners) cannot begin a new line,
//! send control codes to a terminal, or make a line of unlimited length.

use std::io::{self, Write};

use std::sync::Arc;

use parking_lot::RwLock;
use tracing::Metadata;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::OptionalWriter;

use super::limit::cut;

/// Maximum length of a line in bytes, without its end. Paths may have 4096 bytes, each of which may take several here.
pub(super) const LINE_BYTES: usize = 8 << 10;

/// Writes messages as lines.
pub(super) struct Lines<M> {
    /// Returns the writer for one message.
    pub(super) output: M,
    /// The messages that are written; others, which are only kept as events, are dropped.
    pub(super) printed: Arc<RwLock<Targets>>,
}

impl<'a, M, W> MakeWriter<'a> for Lines<M>
where
    M: Fn() -> W,
    W: Write,
{
    type Writer = OptionalWriter<Line<W>>;

    fn make_writer(&'a self) -> Self::Writer {
        OptionalWriter::some(Line((self.output)()))
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Self::Writer {
        let printed = self.printed.read();
        match printed.would_enable(metadata.target(), metadata.level()) {
            true => self.make_writer(),
            false => OptionalWriter::none(),
        }
    }
}

/// Accepts one message, including the end of its line, in a single call.
pub(super) struct Line<W>(W);

impl<W: Write> Write for Line<W> {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(message);
        let mut line = escaped(text.strip_suffix('\n').unwrap_or(&text), LINE_BYTES);
        line.push('\n');
        // One call, so that messages of other threads cannot be mixed in.
        self.0.write_all(line.as_bytes())?;
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The text without characters that affect lines or terminals, and its first `bytes` bytes with a note if there are
/// more.
pub(crate) fn escaped(text: &str, bytes: usize) -> String {
    let kept = cut(text, bytes);
    let mut line = String::with_capacity(kept.len() + 1);
    for character in kept.chars() {
        if is_plain(character) {
            line.push(character);
        } else {
            line.extend(character.escape_default());
        }
    }
    let escaped = line.len();
    line.truncate(cut(&line, bytes).len());
    let left_out = text.len() - kept.len() + (escaped - line.len());
    if left_out > 0 {
        line += &format!(" ... ({left_out} bytes more)");
    }
    line
}

/// Whether it affects neither lines nor terminals.
pub(super) fn is_plain(character: char) -> bool {
    let changes_order = matches!(
        character,
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    let ends_line = matches!(character, '\u{2028}' | '\u{2029}');
    !character.is_control() && !changes_order && !ends_line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(message: &[u8]) -> String {
        let mut line = Line(Vec::new());
        line.write_all(message).unwrap();
        String::from_utf8(line.0).unwrap()
    }

    #[test]
    fn a_name_with_line_ends_and_escapes_stays_one_plain_line() {
        let message = "WARN name=a\nERROR forged\r\u{1b}[2J\u{9b}\u{202e}\u{2028}\t\0é\n";
        let expected =
            "WARN name=a\\nERROR forged\\r\\u{1b}[2J\\u{9b}\\u{202e}\\u{2028}\\t\\u{0}é\n";
        assert_eq!(written(message.as_bytes()), expected);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(written(b"a\xffb\n"), "a\u{fffd}b\n");
    }

    #[test]
    fn a_line_ends_somewhere() {
        for message in ["x".repeat(1 << 20), "\n".repeat(1 << 20)] {
            let line = written(message.as_bytes());
            assert!(line.len() < LINE_BYTES + 40, "{}", line.len());
            assert!(line.ends_with("bytes more)\n"));
            assert_eq!(line.matches('\n').count(), 1);
        }
    }
}
