//! The progress line of a check, on a terminal.

use std::io::{Write, stderr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytesize::ByteSize;
use forebay_fsck::{Progress, Stage};
use forebay_types::to_usize;

/// How often the line is drawn.
const PERIOD: Duration = Duration::from_millis(500);
/// A rate over less time than this is not meaningful.
const SETTLED: Duration = Duration::from_secs(2);
/// Characters of the bar.
const WIDTH: u64 = 20;

/// Draws the line again and again. Never returns.
pub(crate) async fn show(progress: Arc<Progress>) {
    let (mut begun, mut before) = (Instant::now(), (Stage::Opening, 0));
    loop {
        let (stage, done, total) = progress.now();
        // A stage may be repeated, in the next pass.
        if stage != before.0 || done < before.1 {
            begun = Instant::now();
        }
        before = (stage, done);
        draw(&line(stage, done, total, begun.elapsed()));
        tokio::time::sleep(PERIOD).await;
    }
}

/// Removes the line.
pub(crate) fn clear() {
    draw("");
}

/// Draws this line in its place.
pub(crate) fn draw(line: &str) {
    let mut output = stderr().lock();
    // A closed terminal needs no line.
    let _ = write!(output, "\r{line}\x1b[K").and_then(|()| output.flush());
}

fn line(stage: Stage, done: u64, total: Option<u64>, elapsed: Duration) -> String {
    let amount = |count: u64| match stage.counts_bytes() {
        true => ByteSize(count).display().iec().to_string(),
        false => count.to_string(),
    };
    let rate = match elapsed >= SETTLED && done > 0 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "both numbers are at least 0, and fractions are of no interest"
        )]
        true => (done as f64 / elapsed.as_secs_f64()) as u64,
        false => 0,
    };
    // The total is the volume's own count of objects, which may be wrong.
    let total = total.filter(|total| done <= *total);
    let mut line = String::new();
    if let Some(total) = total {
        let full = (u128::from(done) * u128::from(WIDTH) / u128::from(total.max(1))) as usize;
        let empty = to_usize(WIDTH).saturating_sub(full);
        line += &format!("[{}{}] ", "#".repeat(full), "-".repeat(empty));
    }
    line += stage.words();
    if done > 0 {
        line += &format!(": {}", amount(done));
        if let Some(total) = total {
            line += &format!(" of {}", amount(total));
        }
    }
    if rate > 0 {
        line += &format!(", {}/s", amount(rate));
        if let Some(total) = total {
            let left = Duration::from_secs((total - done) / rate);
            line += &format!(", {} left", humantime::format_duration(left));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_is_known() {
        let seconds = Duration::from_secs;
        assert_eq!(
            line(Stage::Opening, 0, None, seconds(9)),
            "opening the metadata"
        );
        assert_eq!(
            line(Stage::Blocks, 5000, None, seconds(10)),
            "block maps: 5000, 500/s"
        );
        assert_eq!(
            line(Stage::Data, 1 << 30, Some(4 << 30), seconds(32)),
            "[#####---------------] data: 1.0 GiB of 4.0 GiB, 32.0 MiB/s, 1m 36s left"
        );
        assert_eq!(
            line(Stage::Names, 10, Some(100), seconds(1)),
            "[##------------------] names: 10 of 100"
        );
    }

    #[test]
    fn a_total_that_was_wrong_is_not_shown() {
        let shown = line(Stage::Objects, 11, Some(10), Duration::from_secs(1));
        assert_eq!(shown, "objects: 11");
    }
}
