//! Reads, writes, names and the bucket over the last minutes: numbers of now, and plots of throughput and latency.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::{Sparkline, Widget};

use super::text;
use crate::live::{Flow, Point};

/// Cells of the numbers before the plots.
const NUMBERS: u16 = 40;

/// The narrowest plot that says something.
const PLOT: u16 = 10;

/// One line of numbers, and what its plots show of a point.
struct Shown {
    name: &'static str,
    color: Color,
    numbers: fn(&Point) -> String,
    throughput: fn(&Point) -> f64,
    latency: fn(&Point) -> Option<f64>,
}

const ALL: [Shown; 4] = [
    Shown {
        name: "reads",
        color: Color::Cyan,
        numbers: |point| of_flow(&point.reads),
        throughput: |point| point.reads.bytes_per_second.unwrap_or(0.0),
        latency: |point| point.reads.p99_seconds,
    },
    Shown {
        name: "writes",
        color: Color::Magenta,
        numbers: |point| of_flow(&point.writes),
        throughput: |point| point.writes.bytes_per_second.unwrap_or(0.0),
        latency: |point| point.writes.p99_seconds,
    },
    Shown {
        name: "names",
        color: Color::Yellow,
        numbers: |point| of_flow(&point.names),
        throughput: |point| point.names.calls_per_second,
        latency: |point| point.names.p99_seconds,
    },
    Shown {
        name: "bucket",
        color: Color::Blue,
        numbers: |point| {
            let bucket = &point.bucket;
            numbers(
                bucket.requests_per_second,
                &text::speed(bucket.get_bytes_per_second + bucket.put_bytes_per_second),
                bucket.p99_seconds,
            )
        },
        throughput: |point| point.bucket.get_bytes_per_second + point.bucket.put_bytes_per_second,
        latency: |point| point.bucket.p99_seconds,
    },
];

/// Lines of the smallest picture.
pub(super) const LEAST: u16 = 4;

const _: () = assert!(ALL.len() == LEAST as usize);

fn of_flow(flow: &Flow) -> String {
    let bytes = flow.bytes_per_second.map(text::speed);
    numbers(
        flow.calls_per_second,
        &bytes.unwrap_or_default(),
        flow.p99_seconds,
    )
}

fn numbers(rate: f64, bytes: &str, p99: Option<f64>) -> String {
    let p99 = text::time(p99);
    format!("{:>6}/s {bytes:>10} p99 {p99:>7}", text::rate(rate))
}

/// Draws all of them with plots as high as there is room for.
pub(super) fn draw(points: &[Point], area: Rect, buffer: &mut Buffer) {
    let each = (area.height / LEAST).max(1);
    let plots = area.width.saturating_sub(NUMBERS);
    for (index, shown) in (0..).zip(&ALL) {
        let y = area.y + index * each;
        if y >= area.bottom() {
            return;
        }
        let style = Style::new().fg(shown.color);
        let name = format!("{:<7}", shown.name);
        buffer.set_stringn(
            area.x,
            y,
            name,
            usize::from(area.width),
            style.add_modifier(Modifier::BOLD),
        );
        let numbers = match points.last() {
            Some(point) => (shown.numbers)(point),
            None => "no point yet".to_owned(),
        };
        let room = area.width.saturating_sub(7);
        buffer.set_stringn(area.x + 7, y, numbers, usize::from(room), Style::new());
        if plots < PLOT {
            continue;
        }
        let height = each.min(area.bottom() - y);
        let place = |x: u16, width: u16| Rect::new(area.x + NUMBERS + x, y, width, height);
        let throughput = points.iter().map(shown.throughput);
        if plots < 2 * PLOT + 1 {
            plot(throughput, style, place(0, plots), buffer);
            continue;
        }
        let half = (plots - 1) / 2;
        plot(throughput, style, place(0, half), buffer);
        let latency = points
            .iter()
            .map(|point| (shown.latency)(point).unwrap_or(0.0));
        let dim = style.add_modifier(Modifier::DIM);
        plot(latency, dim, place(half + 1, half), buffer);
    }
}

/// The heads of the plots, if there are plots.
pub(super) fn draw_heads(area: Rect, buffer: &mut Buffer) {
    let plots = area.width.saturating_sub(NUMBERS);
    let style = Style::new().add_modifier(Modifier::DIM);
    if plots < PLOT || area.is_empty() {
        return;
    }
    let x = area.x + NUMBERS;
    buffer.set_stringn(x, area.y, "throughput", usize::from(plots), style);
    if plots > 2 * PLOT {
        let half = (plots - 1) / 2;
        buffer.set_stringn(x + half + 1, area.y, "p99", usize::from(half), style);
    }
}

/// Draws values as bars, the newest at the right, the largest as high as the place.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "values are between 0 and 1000"
)]
fn plot(values: impl Iterator<Item = f64>, style: Style, area: Rect, buffer: &mut Buffer) {
    let values: Vec<f64> = values.collect();
    let shown = values.len().saturating_sub(usize::from(area.width));
    let values = values.get(shown..).unwrap_or_default();
    let highest = values.iter().copied().fold(0.0, f64::max);
    let scaled = values.iter().map(|value| match highest > 0.0 {
        // What is there is seen, however small it is.
        true if *value > 0.0 => {
            ((value / highest * 1000.0) as u64).max(125 / u64::from(area.height.max(1)))
        }
        _ => 0,
    });
    let missing = usize::from(area.width) - values.len();
    let bars = std::iter::repeat_n(0, missing).chain(scaled);
    let bars: Vec<u64> = bars.collect();
    let sparkline = Sparkline::default().data(bars).max(1000).style(style);
    sparkline.render(area, buffer);
}
