//! The tables: their columns, their rows, and their order.

use std::cmp::Ordering;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::app::{Order, Pane};
use super::text;
use crate::live::Live;

/// Cells of a column with numbers.
const NUMBER: u16 = 11;

/// The least cells of the column with names.
const NAME: u16 = 14;

/// The columns of a pane; the first has the names.
pub(super) fn columns(pane: Pane) -> &'static [&'static str] {
    match pane {
        Pane::Clients => &["client", "calls/s", "read", "written", "mean"],
        Pane::Procedures => &["procedure", "calls/s", "errors/s", "median", "p99"],
        Pane::Requests => &["request", "per s", "errors/s", "bytes", "median", "p99"],
        Pane::Files => &["file", "bytes", "calls/s", "read", "written"],
        Pane::Waits => &["calls wait for", "waiting", "calls/s", "median", "p99"],
    }
}

/// A number as it is shown, and as it is sorted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Number {
    value: f64,
    text: String,
}

fn rate(value: f64) -> Number {
    let text = text::rate(value);
    Number { value, text }
}

fn speed(value: f64) -> Number {
    let text = text::speed(value);
    Number { value, text }
}

fn time(seconds: Option<f64>) -> Number {
    let text = text::time(seconds);
    // No time comes before the shortest.
    let value = seconds.unwrap_or(-1.0);
    Number { value, text }
}

/// A row: its name, and the numbers of the other columns.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) numbers: Vec<Number>,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    pub(super) rows: Vec<Row>,
}

/// The table of a pane, in the order of the gateway.
pub(super) fn of(pane: Pane, live: &Live) -> Table {
    let rows = match pane {
        Pane::Clients => clients(live),
        Pane::Procedures => procedures(live),
        Pane::Requests => requests(live),
        Pane::Files => files(live),
        Pane::Waits => waits(live),
    };
    Table { rows }
}

fn clients(live: &Live) -> Vec<Row> {
    let row = |row: &crate::live::ClientRow| Row {
        name: text::shown(&row.address),
        numbers: vec![
            rate(row.calls_per_second),
            speed(row.read_bytes_per_second),
            speed(row.written_bytes_per_second),
            time(row.mean_seconds),
        ],
    };
    live.clients.iter().map(row).collect()
}

fn procedures(live: &Live) -> Vec<Row> {
    let row = |row: &crate::live::ProcedureRow| Row {
        name: text::shown(&row.procedure),
        numbers: vec![
            rate(row.calls_per_second),
            rate(row.errors_per_second),
            time(row.median_seconds),
            time(row.p99_seconds),
        ],
    };
    live.procedures.iter().map(row).collect()
}

fn requests(live: &Live) -> Vec<Row> {
    let row = |row: &crate::live::RequestRow| Row {
        name: text::shown(&format!("{} {}", row.method, row.cause)),
        numbers: vec![
            rate(row.requests_per_second),
            rate(row.errors_per_second),
            speed(row.bytes_per_second),
            time(row.median_seconds),
            time(row.p99_seconds),
        ],
    };
    live.requests.iter().map(row).collect()
}

fn files(live: &Live) -> Vec<Row> {
    let row = |row: &crate::live::FileRow| Row {
        name: match &row.path {
            Some(path) => text::shown(path),
            None => format!("inode {}", row.fileid),
        },
        numbers: vec![
            speed(row.read_bytes_per_second + row.written_bytes_per_second),
            rate(row.calls_per_second),
            speed(row.read_bytes_per_second),
            speed(row.written_bytes_per_second),
        ],
    };
    live.files.iter().map(row).collect()
}

fn waits(live: &Live) -> Vec<Row> {
    let row = |row: &crate::live::WaitRow| Row {
        name: text::shown(&row.what),
        numbers: vec![
            // Calls that wait at a time.
            rate(row.waited_seconds_per_second),
            rate(row.calls_per_second),
            time(row.median_seconds),
            time(row.p99_seconds),
        ],
    };
    live.waits.iter().map(row).collect()
}

impl Table {
    /// Sorts the rows; rows that are equal keep their order.
    pub(super) fn sort(&mut self, order: Order) {
        let compare = |one: &Row, other: &Row| match order.column {
            0 => one.name.cmp(&other.name),
            column => number(one, column).total_cmp(&number(other, column)),
        };
        self.rows.sort_by(|one, other| {
            let ascending = compare(one, other);
            match order.ascending {
                true => ascending,
                false => ascending.reverse(),
            }
        });
        debug_assert!(self.rows.is_sorted_by(|one, other| {
            let ascending = compare(one, other);
            order.ascending && ascending != Ordering::Greater
                || !order.ascending && ascending != Ordering::Less
        }));
    }
}

fn number(row: &Row, column: usize) -> f64 {
    let number = row.numbers.get(column.saturating_sub(1));
    number.map_or(0.0, |number| number.value)
}

/// Draws a table with its head: as many columns as there is room for.
pub(super) fn draw(
    table: &Table,
    (pane, order, scrolled): (Pane, Order, usize),
    area: Rect,
    buffer: &mut Buffer,
) {
    let columns = columns(pane);
    let room = area.width.saturating_sub(NAME) / NUMBER;
    let wanted = u16::try_from(columns.len().saturating_sub(1));
    let numbers = wanted.map_or(room, |wanted| wanted.min(room));
    let name_width = area.width.saturating_sub(numbers * NUMBER);
    let mut y = area.y;
    let mut line = |name: &str, texts: &[String], style: Style, buffer: &mut Buffer| {
        if y >= area.bottom() {
            return;
        }
        let width = usize::from(name_width.saturating_sub(1));
        let name = match pane {
            Pane::Files => text::ending(name, width),
            _ => name.to_owned(),
        };
        buffer.set_stringn(area.x, y, name, width, style);
        for (index, text) in (0..numbers).zip(texts) {
            let x = area.x + name_width + index * NUMBER;
            let text = format!("{text:>width$}", width = usize::from(NUMBER) - 1);
            buffer.set_stringn(x, y, text, usize::from(NUMBER) - 1, style);
        }
        y += 1;
    };
    let head = columns.iter().enumerate().map(|(index, column)| {
        let mark = match (index == order.column, order.ascending) {
            (true, true) => "▲",
            (true, false) => "▼",
            (false, _) => "",
        };
        format!("{column}{mark}")
    });
    let head: Vec<_> = head.collect();
    let (name, texts) = head
        .split_first()
        .map_or(("", &[][..]), |(name, texts)| (&name[..], texts));
    line(
        name,
        texts,
        Style::new().add_modifier(Modifier::BOLD),
        buffer,
    );
    if table.rows.is_empty() {
        line(
            "nothing in the last 10 s",
            &[],
            Style::new().add_modifier(Modifier::DIM),
            buffer,
        );
    }
    for row in table.rows.iter().skip(scrolled) {
        let texts: Vec<_> = row
            .numbers
            .iter()
            .map(|number| number.text.clone())
            .collect();
        line(&row.name, &texts, Style::new(), buffer);
    }
}
