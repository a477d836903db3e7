//! What is known about the gateway, and what the user has chosen. No terminal, no clock.

use std::ops::ControlFlow;

use super::Seen;
use super::table::{self, Table};
use crate::live::Point;

/// Points that are kept: those of ten minutes.
const POINTS: usize = 300;

/// What the lower half shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pane {
    #[default]
    Clients,
    Procedures,
    Requests,
    Files,
    Waits,
}

impl Pane {
    pub(super) const ALL: [Pane; 5] = [
        Pane::Clients,
        Pane::Procedures,
        Pane::Requests,
        Pane::Files,
        Pane::Waits,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Pane::Clients => "clients",
            Pane::Procedures => "procedures",
            Pane::Requests => "S3 requests",
            Pane::Files => "files",
            Pane::Waits => "waits",
        }
    }

    fn by(self, steps: usize) -> Pane {
        let index = (self as usize + steps) % Pane::ALL.len();
        Pane::ALL.get(index).copied().unwrap_or_default()
    }
}

/// How a table is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// Index of the column.
    pub(super) column: usize,
    /// Smallest first.
    pub(super) ascending: bool,
}

impl Default for Order {
    /// As the gateway sends it: by the column behind the name, the busiest first.
    fn default() -> Order {
        Order {
            column: 1,
            ascending: false,
        }
    }
}

/// A key that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Character(char),
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Tab,
    BackTab,
    Escape,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct App {
    /// The last answer.
    pub(super) seen: Option<Seen>,
    /// Points of all answers, oldest first.
    pub(super) points: Vec<Point>,
    /// Why there is no newer answer.
    pub(super) problem: Option<String>,
    pub(super) pane: Pane,
    orders: [Order; Pane::ALL.len()],
    /// Rows of the table that are scrolled away.
    pub(super) scrolled: usize,
    pub(super) helps: bool,
}

impl App {
    /// Takes an answer of the gateway, or the reason that there is none: then the last one stays.
    pub(super) fn take(&mut self, answer: Result<Seen, String>) {
        let mut seen = match answer {
            Ok(seen) => seen,
            Err(problem) => {
                self.problem = Some(problem);
                return;
            }
        };
        self.problem = None;
        let fresh = std::mem::take(&mut seen.live.series);
        // Numbers that were seen already are those of another run of the gateway.
        if fresh
            .first()
            .is_some_and(|point| point.sequence <= self.last())
        {
            self.points.clear();
        }
        self.points.extend(fresh);
        let over = self.points.len().saturating_sub(POINTS);
        self.points.drain(..over);
        self.seen = Some(seen);
    }

    /// The sequence number of the last point.
    pub(super) fn last(&self) -> u64 {
        self.points.last().map_or(0, |point| point.sequence)
    }

    /// The order of the pane that is shown.
    pub(super) fn order(&self) -> Order {
        self.orders
            .get(self.pane as usize)
            .copied()
            .unwrap_or_default()
    }

    /// The table that is shown, sorted.
    pub(super) fn table(&self) -> Table {
        let live = self.seen.as_ref().map(|seen| &seen.live);
        let mut table = live.map_or_else(Table::default, |live| table::of(self.pane, live));
        table.sort(self.order());
        table
    }

    /// Handles a key; breaks if the user wants to leave.
    pub(super) fn press(&mut self, key: Key) -> ControlFlow<()> {
        if self.helps {
            // Any key closes the help, and those that leave do not leave the program.
            self.helps = false;
            return ControlFlow::Continue(());
        }
        let rows = self.table().rows.len();
        match key {
            Key::Character('q') | Key::Escape => return ControlFlow::Break(()),
            Key::Character('?' | 'h') => self.helps = true,
            Key::Tab => self.show(self.pane.by(1)),
            Key::BackTab => self.show(self.pane.by(Pane::ALL.len() - 1)),
            Key::Character(digit @ '1'..='5') => {
                let index = digit.to_digit(10).unwrap_or(1) as usize - 1;
                self.show(Pane::default().by(index));
            }
            Key::Right | Key::Character('s' | '>') => self.sort_by(1),
            Key::Left | Key::Character('S' | '<') => self.sort_by(usize::MAX),
            Key::Character('r') => {
                if let Some(order) = self.orders.get_mut(self.pane as usize) {
                    order.ascending = !order.ascending;
                }
            }
            Key::Up | Key::Character('k') => self.scrolled = self.scrolled.saturating_sub(1),
            Key::Down | Key::Character('j') => self.scrolled += 1,
            Key::PageUp => self.scrolled = self.scrolled.saturating_sub(10),
            Key::PageDown => self.scrolled += 10,
            Key::Home => self.scrolled = 0,
            Key::End => self.scrolled = rows,
            Key::Character(_) => {}
        }
        self.scrolled = self.scrolled.min(rows.saturating_sub(1));
        ControlFlow::Continue(())
    }

    fn show(&mut self, pane: Pane) {
        self.pane = pane;
        self.scrolled = 0;
    }

    /// Sorts by the next column, or by the one before.
    fn sort_by(&mut self, step: usize) {
        let columns = table::columns(self.pane).len();
        if let Some(order) = self.orders.get_mut(self.pane as usize) {
            order.column = match step {
                1 => (order.column + 1) % columns,
                _ => (order.column + columns - 1) % columns,
            };
            // Names from A, numbers from the largest.
            order.ascending = order.column == 0;
        }
        self.scrolled = 0;
    }
}
