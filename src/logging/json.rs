//! A message as JSON: one object, whose line has the same limit and the same characters as a line of text.

use std::fmt::Write as _;
use std::time::SystemTime;

use serde_json::Value;
use tracing::Level;

use super::line::{LINE_BYTES, is_plain};
use super::record::Record;

/// Bytes of a line for everything but message and fields: priority, time, level, module, and the number of bytes that
/// were left out.
const AROUND: usize = 512;

/// Bytes of them for the module.
const MODULE_BYTES: usize = 256;

/// Bytes of a line for a message, so that a long one leaves room for fields.
const MESSAGE_BYTES: usize = LINE_BYTES * 3 / 4;

/// The object of a message. Members are always in this order: `time` (RFC 3339, UTC, microseconds; none if `time` is
/// none), `level`, `module`, `message`, `fields`, and `left_out`, a number of bytes, if something was too long.
pub(super) fn line(
    time: Option<SystemTime>,
    level: Level,
    module: &str,
    record: &Record,
) -> String {
    let mut line = String::from("{");
    if let Some(time) = time {
        // Writing to a string does not fail.
        let _ = write!(
            line,
            "\"time\":\"{}\",",
            humantime::format_rfc3339_micros(time)
        );
    }
    let _ = write!(line, "\"level\":\"{}\",\"module\":\"", word(level));
    let mut left_out = push(&mut line, module, MODULE_BYTES);
    line += "\",\"message\":\"";
    let begin = line.len();
    left_out += push(&mut line, &record.message, MESSAGE_BYTES);
    let mut room = (LINE_BYTES - AROUND).saturating_sub(line.len() - begin);
    line += "\",\"fields\":{";
    let mut comma = "";
    for (name, value) in &record.fields {
        let mut member = format!("{comma}\"{name}\":");
        let (text, quote) = match value {
            Value::String(text) => (text.clone(), "\""),
            other => (other.to_string(), ""),
        };
        // A number is whole or left out.
        let least = member.len() + 2 * quote.len() + if quote.is_empty() { text.len() } else { 0 };
        let Some(rest) = room.checked_sub(least) else {
            left_out += text.len();
            continue;
        };
        member += quote;
        if quote.is_empty() {
            member += &text;
        } else {
            left_out += push(&mut member, &text, rest);
        }
        member += quote;
        room -= member.len();
        line += &member;
        comma = ",";
    }
    line.push('}');
    if left_out > 0 {
        let _ = write!(line, ",\"left_out\":{left_out}");
    }
    line.push('}');
    line
}

/// The word for a level, as in `log_level`.
pub(super) fn word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// Appends the content of a JSON string, of at most `room` bytes; returns the number of bytes of `text` that are left
/// out. Characters that affect lines or terminals are escaped, beyond those that JSON requires.
fn push(line: &mut String, text: &str, room: usize) -> usize {
    let end = line.len() + room;
    for (at, character) in text.char_indices() {
        let before = line.len();
        match character {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            _ if is_plain(character) => line.push(character),
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    // Writing to a string does not fail.
                    let _ = write!(line, "\\u{unit:04x}");
                }
            }
        }
        if line.len() > end {
            line.truncate(before);
            return text.len() - at;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(message: &str, fields: &[(&'static str, Value)]) -> Record {
        Record {
            message: message.to_owned(),
            fields: fields.to_vec(),
        }
    }

    fn line_of(record: &Record) -> String {
        line(
            Some(SystemTime::UNIX_EPOCH),
            Level::WARN,
            "forebay_nfs::server",
            record,
        )
    }

    #[test]
    fn members_keep_their_order_and_numbers_are_numbers() {
        let fields = [
            ("client", "10.0.0.1:700".into()),
            ("port", 700_u64.into()),
            ("sealed", true.into()),
        ];
        assert_eq!(
            line_of(&record("a \"message\"", &fields)),
            "{\"time\":\"1970-01-01T00:00:00.000000Z\",\"level\":\"warn\",\"module\":\"forebay_nfs::server\",\
             \"message\":\"a \\\"message\\\"\",\"fields\":{\"client\":\"10.0.0.1:700\",\"port\":700,\"sealed\":true}}"
        );
        assert_eq!(
            line(None, Level::INFO, "forebay", &record("", &[])),
            "{\"level\":\"info\",\"module\":\"forebay\",\"message\":\"\",\"fields\":{}}"
        );
    }

    #[test]
    fn whatever_a_message_holds_the_line_is_one_plain_object_with_its_text() {
        let mut text: String = (0..=0x2100).filter_map(char::from_u32).collect();
        // In pieces, since a line ends somewhere.
        text.push_str("\u{1f600}\u{10ffff}\u{fffd}\"}\n{");
        let characters: Vec<char> = text.chars().collect();
        for piece in characters.chunks(400) {
            let piece: String = piece.iter().collect();
            let line = line_of(&record(&piece, &[("name", piece.clone().into())]));
            assert!(line.chars().all(is_plain), "{line}");
            let object: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(object["message"], *piece);
            assert_eq!(object["fields"]["name"], *piece);
            assert_eq!(object["left_out"], Value::Null);
        }
    }

    #[test]
    fn a_line_ends_somewhere_and_says_how_much_is_left_out() {
        for unit in ["x", "\n", "\u{202e}", "é", "\""] {
            let long = unit.repeat(1 << 16);
            let number: Value = u64::MAX.into();
            let fields: Vec<_> = (0..40)
                .map(|index| {
                    (
                        "name",
                        if index % 2 == 0 {
                            long.clone().into()
                        } else {
                            number.clone()
                        },
                    )
                })
                .collect();
            let line = line_of(&record(&long, &fields));
            assert!(line.len() <= LINE_BYTES - 3, "{}", line.len());
            let object: Value = serde_json::from_str(&line).unwrap();
            let message = object["message"].as_str().unwrap();
            assert!(message.len() > 500 && long.starts_with(message));
            let shown = object["left_out"].as_u64().unwrap();
            assert!(shown > 20 * (1 << 16), "{shown}");
        }
    }

    #[test]
    fn a_long_message_leaves_room_for_the_client() {
        let line = line_of(&record(
            &"x".repeat(1 << 16),
            &[("client", "10.0.0.1".into())],
        ));
        let object: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["fields"]["client"], "10.0.0.1");
        assert_eq!(object["left_out"], (1 << 16) - MESSAGE_BYTES);
    }
}
