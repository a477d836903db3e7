//! `forebay top`: the last ten minutes of a running gateway in a terminal, over its control socket.
//!
//! ```text
//!   keyboard --thread--> keys ----+
//!   control socket --every 2 s----+--> App --draw--> buffer --> terminal, or text for `--once`
//!   signals: resize, end ---------+
//! ```
//!
//! * `app`: what is known and what the user has chosen; changed by keys and answers, without a terminal.
//! * `draw`, `flows`, `table`: the picture of an `App` in a buffer of any size.
//! * `text`: numbers for people.
//! * `screen`: the terminal, which is restored however the program ends.

mod app;
mod draw;
mod flows;
mod screen;
mod table;
mod text;

#[cfg(test)]
mod tests;

use std::path::Path;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde_json::Value;

use crate::admin::{self, ClientError, Status};
use crate::live::Live;
use app::App;

pub use screen::run;

/// What one exchange with the gateway brought.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    live: Live,
    status: Status,
}

/// Asks the gateway that uses `data_dir`, for points with a sequence number above `after`.
async fn ask(data_dir: &Path, after: u64) -> Result<Seen, ClientError> {
    let status = admin::status(data_dir).await?;
    let live = admin::live(data_dir, after).await?;
    Ok(Seen { live, status })
}

/// The answer to `live` as JSON, and `cost` as in `status --json` if the gateway reports it.
///
/// # Errors
/// The gateway does not answer.
pub async fn once_json(data_dir: &Path) -> Result<Value, ClientError> {
    let seen = ask(data_dir, 0).await?;
    let mut json = serde_json::to_value(&seen.live).unwrap_or_default();
    if let (Some(object), Some(cost)) = (json.as_object_mut(), cost(&seen.status)) {
        object.insert("cost".to_owned(), cost);
    }
    Ok(json)
}

/// What the bucket costs, if the gateway reports it.
fn cost(status: &Status) -> Option<Value> {
    let status = serde_json::to_value(status).ok()?;
    status.get("cost").filter(|cost| !cost.is_null()).cloned()
}

/// One picture as plain text, without spaces at the ends of lines: as large as the terminal, or of 100 columns and 40
/// lines.
///
/// # Errors
/// The gateway does not answer.
pub async fn once_text(data_dir: &Path) -> Result<String, ClientError> {
    let mut app = App::default();
    app.take(Ok(ask(data_dir, 0).await?));
    let (width, height) = screen::size().unwrap_or((100, 40));
    Ok(picture(&app, width, height))
}

/// The picture of `app` as plain text.
fn picture(app: &App, width: u16, height: u16) -> String {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    draw::draw(app, area, &mut buffer);
    let mut text = String::new();
    for y in 0..height {
        let cells = (0..width).filter_map(|x| buffer.cell((x, y)));
        let line: String = cells.map(ratatui::buffer::Cell::symbol).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
