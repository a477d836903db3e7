//! The parts of one message.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, SocketAddr};

use serde_json::Value;
use tracing::Event;
use tracing::field::{Field, Visit};

/// Name of the field with a client's address, with or without its port.
const CLIENT: &str = "client";

/// Name of the field with the message's text.
const MESSAGE: &str = "message";

/// Text and fields of one message, as its place in the code has given them.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) message: String,
    /// Strings, numbers and truth values, in the order of the code.
    pub(super) fields: Vec<(&'static str, Value)>,
}

impl Record {
    pub(super) fn of(event: &Event<'_>) -> Record {
        let mut record = Record::default();
        event.record(&mut record);
        record
    }

    fn add(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            (MESSAGE, Value::String(text)) => self.message = text,
            // Words of the language have this in front.
            (name, value) => self
                .fields
                .push((name.strip_prefix("r#").unwrap_or(name), value)),
        }
    }
}

impl Visit for Record {
    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no infinity.
        let number = serde_json::Number::from_f64(value);
        let text = || Value::String(value.to_string());
        self.add(field, number.map_or_else(text, Value::Number));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // Writing to a string fails only if the value does.
        let _ = write!(text, "{value:?}");
        self.add(field, text.into());
    }
}

/// The address in the field `client`; another text is used unchanged.
pub(super) fn client_of(event: &Event<'_>) -> Option<String> {
    // Found without formatting anything.
    event.metadata().fields().field(CLIENT)?;
    let text = text_of(event, CLIENT);
    let address = text.parse().map(|address: SocketAddr| address.ip());
    let address = address.or_else(|_| text.parse::<IpAddr>());
    Some(address.map_or(text, |ip| ip.to_canonical().to_string()))
}

pub(super) fn message_of(event: &Event<'_>) -> String {
    text_of(event, MESSAGE)
}

/// The value of one field as text.
fn text_of(event: &Event<'_>, name: &str) -> String {
    struct One<'a> {
        name: &'a str,
        text: String,
    }
    impl Visit for One<'_> {
        fn record_str(&mut self, field: &Field, value: &str) {
            if field.name() == self.name {
                self.text = value.to_owned();
            }
        }

        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            if field.name() == self.name {
                // Writing to a string fails only if the value does.
                let _ = write!(self.text, "{value:?}");
            }
        }
    }
    let mut one = One {
        name,
        text: String::new(),
    };
    event.record(&mut one);
    one.text
}
