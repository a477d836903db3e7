//! The whole picture.
//!
//! ```text
//!   health, store, time                       always
//!   how far the bucket is behind              always
//!   problems                                  as many as fit
//!   snapshots, trash                          if there are some, from 20 lines on
//!   cost                                      if the gateway reports it
//!   log, memory, names, disk cache            one line, or a bar each
//!   hits of the caches                        if something was looked for, from 20 lines on
//!   reads, writes, names, bucket              one line each, or more
//!   the table that was chosen                 the rest, at least four lines
//!   keys                                      always
//! ```

use std::time::{Duration, UNIX_EPOCH};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};

use super::app::{App, Pane};
use super::{Seen, cost, flows, table, text};
use crate::admin::Status;
use crate::health::State as HealthState;
use crate::live::Point;

/// Lines of the table's tabs, head and first rows.
const TABLE: u16 = 4;

/// From this height on, levels have bars.
const HIGH: u16 = 20;

const KEYS: &str = "q quit  Tab, 1-5 table  < > sort by  r reverse  ↑ ↓ scroll  ? help";
const FEW_KEYS: &str = "q quit  Tab table  > sort  ? help";

const HELP: &[&str] = &[
    "q, Esc, Ctrl-C   quit",
    "Tab, Shift-Tab   next table, table before",
    "1 2 3 4 5        clients, procedures, S3 requests, files, waits",
    "> s →, < S ←     sort by the next column, by the one before",
    "r                reverse the order",
    "↑ k, ↓ j         scroll by a row",
    "PgUp, PgDn       scroll by ten rows",
    "Home, End        first row, last row",
    "?                this help; any key closes it",
    "",
    "Plots: a bar for 2 s, the newest at the right. Tables: the last 10 s.",
    "Times and sizes: docs/operations.md, \"top\".",
];

/// What is filled, and its limit.
struct Level {
    name: &'static str,
    used: f64,
    limit: Option<f64>,
}

/// Draws everything into a place of any size.
pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    let mut rest = Rest(area);
    let footer = rest.take_below(1);
    for line in head(app, area) {
        line.render(rest.take_above(1), buffer);
    }
    if let Some(seen) = &app.seen {
        let levels = levels(seen, app.points.last());
        if area.height >= HIGH {
            draw_bars(&levels, &mut rest, buffer);
            let has_room = rest.0.height > TABLE + flows::LEAST;
            if let Some(hits) = hits_line(&seen.status).filter(|_| has_room) {
                Line::raw(hits).render(rest.take_above(1), buffer);
            }
        } else {
            short_levels(&levels).render(rest.take_above(1), buffer);
        }
        let room = rest.0.height.saturating_sub(TABLE);
        if room > flows::LEAST {
            flows::draw_heads(rest.take_above(1), buffer);
        }
        let room = rest.0.height.saturating_sub(TABLE);
        // Two thirds at most: the rest is the table's.
        let flows_height = (room * 2 / 3 / flows::LEAST * flows::LEAST).max(flows::LEAST);
        flows::draw(&app.points, rest.take_above(flows_height.min(room)), buffer);
        tabs(app.pane).render(rest.take_above(1), buffer);
        let state = (app.pane, app.order(), app.scrolled);
        table::draw(&app.table(), state, rest.0, buffer);
    }
    let keys = if usize::from(area.width) > KEYS.chars().count() {
        KEYS
    } else {
        FEW_KEYS
    };
    Line::styled(keys, Style::new().add_modifier(Modifier::DIM)).render(footer, buffer);
    if app.helps {
        draw_help(area, buffer);
    }
}

/// A place that is given away line by line.
struct Rest(Rect);

impl Rest {
    fn take_above(&mut self, wanted: u16) -> Rect {
        let height = wanted.min(self.0.height);
        let given = Rect { height, ..self.0 };
        self.0.y += height;
        self.0.height -= height;
        given
    }

    fn take_below(&mut self, wanted: u16) -> Rect {
        let height = wanted.min(self.0.height);
        self.0.height -= height;
        Rect {
            y: self.0.bottom(),
            height,
            ..self.0
        }
    }
}

fn color(health: HealthState) -> Color {
    match health {
        HealthState::Healthy => Color::Green,
        HealthState::Degraded => Color::Yellow,
        HealthState::Failing => Color::Red,
    }
}

/// The lines above everything else.
fn head(app: &App, area: Rect) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let alarm = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
    if let Some(problem) = &app.problem {
        let tail = match app.seen {
            Some(_) => "; the values below are the last ones, and top tries again",
            None => "; top tries again",
        };
        lines.push(Line::styled(
            format!("{}{tail}", text::shown(problem)),
            alarm,
        ));
    }
    let Some(Seen { live, status }) = &app.seen else {
        if lines.is_empty() {
            lines.push(Line::raw("asking the gateway ..."));
        }
        return lines;
    };
    let health = &status.health;
    let time = UNIX_EPOCH + Duration::try_from_secs_f64(live.time).unwrap_or_default();
    let time = humantime::format_rfc3339_seconds(time).to_string();
    let bold = Style::new()
        .fg(color(health.state))
        .add_modifier(Modifier::BOLD);
    lines.push(Line::from(vec![
        Span::styled(health.state.word(), bold),
        Span::raw(format!(
            "  {}  up {}  {time}",
            text::shown(&status.store),
            text::time(Some(status.uptime_seconds)),
        )),
    ]));
    let behind = match status.oldest_unpublished_age_seconds {
        None => "the bucket has everything".to_owned(),
        Some(age) => format!(
            "the bucket is {} behind: {} of log, {} of data",
            text::time(Some(age)),
            text::bytes(status.unpublished_bytes as f64),
            text::bytes(status.dirty_bytes as f64),
        ),
    };
    let errors = app
        .points
        .last()
        .map_or(0.0, |point| point.errors_per_second);
    lines.push(Line::raw(format!(
        "{behind}; {} errors/s",
        text::rate(errors)
    )));
    if area.height >= HIGH {
        lines.extend(kept_line(status).map(Line::raw));
    }
    let room = usize::from(area.height / 8).max(1);
    for problem in health.problems.iter().take(room) {
        let style = Style::new().fg(color(problem.state));
        lines.push(Line::styled(text::shown(&problem.message), style));
    }
    if let Some(cost) = cost(status) {
        lines.extend(cost_line(&cost).map(Line::raw));
    }
    lines
}

/// Snapshots and the trash, if there are any.
fn kept_line(status: &Status) -> Option<String> {
    let mut parts = Vec::new();
    if status.snapshots > 0 {
        let held = text::bytes(status.snapshot_held_bytes as f64);
        parts.push(format!("snapshots {}, {held} held", status.snapshots));
    }
    if status.trash_objects > 0 {
        let trash = text::bytes(status.trash_bytes as f64);
        parts.push(format!("trash {} objects, {trash}", status.trash_objects));
    }
    if let Some(due) = status.next_snapshot {
        parts.push(format!("next snapshot {}", crate::admin::utc(due)));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// What the bucket costs a day, and which cause costs most.
fn cost_line(cost: &serde_json::Value) -> Option<String> {
    let per_day = cost.get("per_day")?.as_f64()?;
    let currency = text::shown(cost.get("currency")?.as_str()?);
    let mut line = format!("cost {per_day:.2} {currency} a day");
    let causes = cost.get("by_cause").and_then(serde_json::Value::as_array);
    let priced = causes.into_iter().flatten().filter_map(|cause| {
        let name = cause.get("cause")?.as_str()?;
        Some((name, cause.get("per_day")?.as_f64()?))
    });
    if let Some((name, most)) = priced.max_by(|one, other| one.1.total_cmp(&other.1)) {
        line += &format!(", {most:.2} of it for {}", text::shown(name));
    }
    if let Some(prices) = cost.get("prices").and_then(serde_json::Value::as_str) {
        line += &format!(" ({})", text::shown(prices));
    }
    Some(line)
}

fn levels(seen: &Seen, point: Option<&Point>) -> Vec<Level> {
    let Some(point) = point else {
        return Vec::new();
    };
    let limits = seen.live.limits;
    let mut levels = Vec::new();
    for (name, used, limit) in [
        ("log", point.log_bytes, limits.log_bytes),
        ("memory", point.memory_bytes, limits.memory_bytes),
        ("names", point.names_bytes, limits.names_bytes),
        (
            "disk cache",
            point.disk_cache_bytes,
            limits.disk_cache_bytes,
        ),
    ] {
        levels.push(Level { name, used, limit });
    }
    levels
}

impl Level {
    /// From 0 to 1; none without a limit.
    fn part(&self) -> Option<f64> {
        let limit = self.limit.filter(|limit| *limit > 0.0)?;
        Some((self.used / limit).clamp(0.0, 1.0))
    }

    fn style(&self) -> Style {
        Style::new().fg(match self.part() {
            Some(part) if part >= 0.9 => Color::Red,
            Some(part) if part >= 0.7 => Color::Yellow,
            _ => Color::Green,
        })
    }
}

/// All levels in one line.
fn short_levels(levels: &[Level]) -> Line<'static> {
    let spans = levels.iter().map(|level| match level.part() {
        Some(part) => Span::styled(
            format!("{} {:.0}%  ", level.name, part * 100.0),
            level.style(),
        ),
        None => Span::raw(format!("{} none  ", level.name)),
    });
    Line::from_iter(spans)
}

/// A line with a bar for each level.
fn draw_bars(levels: &[Level], rest: &mut Rest, buffer: &mut Buffer) {
    for level in levels {
        let Some(part) = level.part() else {
            continue;
        };
        let limit = level.limit.unwrap_or_default();
        let (used, limit) = (text::bytes(level.used), text::bytes(limit));
        let area = rest.take_above(1);
        let width = area.width.saturating_sub(44).clamp(10, 60);
        let line = Line::from(vec![
            Span::raw(format!("{:<11}", level.name)),
            Span::styled(bar(part, width), level.style()),
            Span::raw(format!(" {:>4.0}% {used} of {limit}", part * 100.0)),
        ]);
        line.render(area, buffer);
    }
}

/// The shares of look-ups since the start that the caches answered.
fn hits_line(status: &Status) -> Option<String> {
    let metadata = status
        .metadata_cache
        .map(|cache| (cache.hits, cache.misses));
    let disk = status.disk_cache;
    let disk = disk.map(|cache| (cache.hits, cache.misses + cache.damaged));
    let caches = [("metadata in memory", metadata), ("disk cache", disk)];
    let shares = caches.into_iter().filter_map(|(cache, counts)| {
        let (hits, missed) = counts.filter(|(hits, missed)| hits + missed > 0)?;
        let percent = u128::from(hits) * 100 / u128::from(hits + missed);
        Some(format!("{cache} {percent}%"))
    });
    let shares: Vec<String> = shares.collect();
    (!shares.is_empty()).then(|| format!("hits since the start: {}", shares.join(", ")))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the part is between 0 and 1"
)]
fn bar(part: f64, width: u16) -> String {
    let width = usize::from(width);
    let full = ((part * width as f64).round() as usize).min(width);
    // What is there is seen.
    let full = if part > 0.0 { full.max(1) } else { full };
    format!("{}{}", "█".repeat(full), "░".repeat(width - full))
}

fn tabs(chosen: Pane) -> Line<'static> {
    let spans = Pane::ALL.iter().enumerate().map(|(index, pane)| {
        let style = match *pane == chosen {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        };
        let mark = if *pane == chosen { "*" } else { " " };
        Span::styled(format!("{mark}{} {} ", index + 1, pane.title()), style)
    });
    Line::from_iter(spans)
}

fn draw_help(area: Rect, buffer: &mut Buffer) {
    let widths = HELP.iter().map(|line| line.chars().count());
    let at_most =
        |cells: usize, most: u16| u16::try_from(cells).map_or(most, |cells| cells.min(most));
    let width = at_most(widths.max().unwrap_or(0) + 4, area.width);
    let height = at_most(HELP.len() + 2, area.height);
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    Clear.render(place, buffer);
    let block = ratatui::widgets::Block::bordered().title(" forebay top ");
    let inside = block.inner(place);
    block.render(place, buffer);
    for (y, line) in (inside.y..).zip(HELP) {
        if y < inside.bottom() && inside.width > 2 {
            buffer.set_stringn(
                inside.x + 1,
                y,
                line,
                usize::from(inside.width) - 1,
                Style::new(),
            );
        }
    }
}
