//! Pictures of a gateway that a test made, in several sizes.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::app::{App, Key, Order, Pane};
use super::*;
use crate::admin::fake::{some_live, some_status};
use crate::live::{
    BucketFlow, ClientRow, FileRow, Flow, Limits, ProcedureRow, RequestRow, WaitRow,
};

fn seen() -> Seen {
    let client = |address: &str, calls, read| ClientRow {
        address: address.to_owned(),
        calls_per_second: calls,
        read_bytes_per_second: read,
        written_bytes_per_second: 1000.0,
        mean_seconds: Some(0.000_25),
    };
    let mut live = some_live(0);
    for (index, point) in live.series.iter_mut().enumerate() {
        let size = index as f64 + 1.0;
        point.reads = Flow {
            calls_per_second: 500.0 * size,
            bytes_per_second: Some(2_097_152.0 * size),
            median_seconds: Some(0.000_1),
            p99_seconds: Some(0.003 * size),
        };
        point.bucket = BucketFlow {
            requests_per_second: 2.5,
            get_bytes_per_second: 1024.0,
            ..BucketFlow::default()
        };
        point.log_bytes = 950.0;
    }
    live.limits = Limits {
        log_bytes: Some(1000.0),
        memory_bytes: Some(4e6),
        ..Limits::default()
    };
    live.clients = vec![
        client("10.0.0.1", 700.0, 5e6),
        client("10.0.0.20", 20.0, 9e6),
        client("other", 3.0, 0.0),
    ];
    live.procedures = vec![ProcedureRow {
        procedure: "READ".to_owned(),
        calls_per_second: 700.0,
        errors_per_second: 0.5,
        median_seconds: Some(0.000_1),
        p99_seconds: None,
    }];
    live.requests = vec![RequestRow {
        method: "put".to_owned(),
        cause: "publish".to_owned(),
        requests_per_second: 1.5,
        errors_per_second: 0.0,
        bytes_per_second: 2048.0,
        median_seconds: Some(0.03),
        p99_seconds: Some(1.5),
    }];
    live.waits = vec![WaitRow {
        what: "flush".to_owned(),
        calls_per_second: 40.0,
        waited_seconds_per_second: 1.25,
        median_seconds: Some(0.03),
        p99_seconds: Some(0.2),
    }];
    let file = |path: Option<&str>, fileid| FileRow {
        path: path.map(str::to_owned),
        fileid,
        calls_per_second: 10.0,
        read_bytes_per_second: 4096.0,
        written_bytes_per_second: 0.0,
    };
    live.files = vec![
        file(Some(r"/home/ann/<script>\x1b[31m"), 7),
        // The gateway escapes names, but a terminal must not depend on it.
        file(Some("/evil\x1b[2J\n\u{202e}txt"), 8),
        file(None, 99),
    ];
    Seen {
        live,
        status: some_status(),
    }
}

fn app() -> App {
    let mut app = App::default();
    app.take(Ok(seen()));
    app
}

/// The picture as the terminal has it, which is the same as plain text.
fn drawn(app: &App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let draw = |frame: &mut ratatui::Frame<'_>| {
        let area = frame.area();
        draw::draw(app, area, frame.buffer_mut());
    };
    terminal.draw(draw).unwrap();
    let buffer = terminal.backend().buffer();
    let cells = buffer.content().chunks(usize::from(width));
    let lines = cells.map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>());
    let text: String = lines.map(|line| format!("{}\n", line.trim_end())).collect();
    assert_eq!(text, picture(app, width, height));
    text
}

fn press(app: &mut App, keys: &str) {
    for key in keys.chars() {
        assert!(app.press(Key::Character(key)).is_continue(), "{key}");
    }
}

fn says(picture: &str, all: &[&str]) {
    for one in all {
        assert!(picture.contains(one), "{one} is not in\n{picture}");
    }
}

#[test]
fn the_smallest_picture_has_the_most_important() {
    let picture = drawn(&app(), 40, 12);
    says(
        &picture,
        &[
            "degraded  s3://bucket/prefix",
            "the bucket is 1.2 s behind",
            "the bucket does not answer",
            "log 95%  memory 25%",
            "reads    1500/s  6.0 MiB/s p99  9.0 ms",
            "*1 clients",
            "client",
            "10.0.0.1",
            "q quit",
        ],
    );
}

#[test]
fn the_usual_picture_has_bars_plots_and_tables() {
    let picture = drawn(&app(), 80, 24);
    says(
        &picture,
        &[
            "snapshots 4, 7.0 MiB held; trash 9 objects, 3.0 MiB; next snapshot 2026-11-27T",
            "log        █████████",
            "95% 950 B of 1000 B",
            "hits since the start: metadata in memory 90%, disk cache 55%\n",
            "reads    1500/s  6.0 MiB/s p99  9.0 ms",
            "bucket    2.5/s  1.0 KiB/s p99       -",
            "throughput",
            "  calls/s▼       read    written       mean",
            "700  4.8 MiB/s   1000 B/s     250 µs",
            "3.0      0 B/s",
            "q quit  Tab, 1-5 table",
        ],
    );
    let mut fresh = seen();
    fresh.status.metadata_cache = None;
    fresh.status.disk_cache.as_mut().unwrap().hits = 0;
    let mut app = app();
    app.take(Ok(fresh));
    says(
        &drawn(&app, 80, 24),
        &["hits since the start: disk cache 0%\n"],
    );
    // Three points, growing, at the right end of their plot.
    let reads = picture.lines().find(|line| line.starts_with("reads"));
    assert!(reads.unwrap().contains('█'), "{picture}");
}

#[test]
fn a_large_picture_uses_its_room() {
    let picture = drawn(&app(), 200, 60);
    says(&picture, &["throughput", "p99", "10.0.0.20"]);
    let reads = picture.lines().position(|line| line.starts_with("reads"));
    let writes = picture.lines().position(|line| line.starts_with("writes"));
    assert!(writes.unwrap() - reads.unwrap() > 3, "{picture}");
}

#[test]
fn any_size_is_drawn() {
    let mut app = app();
    for helps in [false, true] {
        app.helps = helps;
        for (width, height) in [(1, 1), (3, 2), (13, 5), (20, 200), (300, 4), (57, 21)] {
            drawn(&app, width, height);
        }
    }
}

#[test]
fn each_pane_has_its_table() {
    let mut app = app();
    press(&mut app, "2");
    says(
        &drawn(&app, 80, 24),
        &["*2 procedures", "READ", "0.5", "100 µs"],
    );
    press(&mut app, "3");
    says(
        &drawn(&app, 80, 24),
        &["*3 S3 requests", "put publish", "30.0 ms", "1.5 s"],
    );
    assert!(app.press(Key::Tab).is_continue());
    says(&drawn(&app, 80, 24), &["*4 files", "inode 99", "4.0 KiB/s"]);
    assert!(app.press(Key::Tab).is_continue());
    says(
        &drawn(&app, 80, 24),
        &["*5 waits", "calls wait for", "flush", "1.2", "40", "200 ms"],
    );
    assert!(app.press(Key::Tab).is_continue());
    assert_eq!(app.pane, Pane::Clients);
    assert!(app.press(Key::BackTab).is_continue());
    assert_eq!(app.pane, Pane::Waits);
    press(&mut app, "4");
    assert_eq!(app.pane, Pane::Files);
}

#[test]
fn names_send_no_orders_to_the_terminal() {
    let mut app = app();
    press(&mut app, "4");
    let mut seen = seen();
    seen.status.store = "s3://\x1b]0;title\x07".to_owned();
    seen.status.health.problems[0].message = "503\nSlow\u{85}Down".to_owned();
    app.take(Ok(seen));
    for (width, height) in [(40, 12), (80, 24), (200, 60)] {
        let picture = drawn(&app, width, height);
        let is_order = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!picture.contains(is_order), "{picture:?}");
    }
    let picture = drawn(&app, 200, 60);
    says(
        &picture,
        &[
            r"/home/ann/<script>\x1b[31m",
            r"/evil\u{1b}[2J\u{a}\u{202e}txt",
        ],
    );
}

fn names(app: &App) -> Vec<String> {
    let rows = app.table().rows;
    rows.into_iter().map(|row| row.name).collect()
}

#[test]
fn tables_are_sorted_by_the_chosen_column() {
    let mut app = app();
    assert_eq!(names(&app), ["10.0.0.1", "10.0.0.20", "other"]);
    press(&mut app, ">");
    assert_eq!(names(&app), ["10.0.0.20", "10.0.0.1", "other"]);
    press(&mut app, "r");
    assert_eq!(names(&app), ["other", "10.0.0.1", "10.0.0.20"]);
    says(&drawn(&app, 80, 24), &["read▲"]);
    press(&mut app, "r<<");
    let by_name = Order {
        column: 0,
        ascending: true,
    };
    assert_eq!(app.order(), by_name);
    press(&mut app, "<");
    assert_eq!(app.order().column, 4);
    // Each pane has its own order.
    press(&mut app, "2");
    assert_eq!(app.order(), Order::default());
    press(&mut app, "1s");
    assert_eq!(app.order().column, 0);
}

#[test]
fn rows_scroll_and_stay_within_the_table() {
    let mut app = app();
    press(&mut app, "jjjjjjj");
    assert_eq!(app.scrolled, 2);
    let picture = drawn(&app, 80, 24);
    assert!(!picture.contains("10.0.0.20"), "{picture}");
    says(&picture, &["other"]);
    press(&mut app, "k");
    assert_eq!(app.scrolled, 1);
    for (key, scrolled) in [
        (Key::Home, 0),
        (Key::PageDown, 2),
        (Key::PageUp, 0),
        (Key::End, 2),
    ] {
        assert!(app.press(key).is_continue());
        assert_eq!(app.scrolled, scrolled, "{key:?}");
    }
}

#[test]
fn help_is_shown_and_closed_by_any_key() {
    let mut app = app();
    press(&mut app, "?");
    says(
        &drawn(&app, 80, 24),
        &["reverse the order", "any key closes it"],
    );
    assert!(app.press(Key::Character('q')).is_continue());
    assert!(!app.helps);
    for key in [Key::Character('q'), Key::Escape] {
        assert!(app.press(key).is_break());
    }
}

#[test]
fn a_gateway_that_is_gone_is_said_and_its_last_values_stay() {
    let mut app = App::default();
    says(&drawn(&app, 80, 24), &["asking the gateway"]);
    app.take(Err("no gateway runs with data_dir = /x".to_owned()));
    says(
        &drawn(&app, 100, 24),
        &["no gateway runs with data_dir = /x; top tries again"],
    );
    app.take(Ok(seen()));
    assert!(!drawn(&app, 80, 24).contains("no gateway"));
    app.take(Err("no gateway runs".to_owned()));
    says(
        &drawn(&app, 100, 24),
        &[
            "no gateway runs; the values below are the last ones",
            "10.0.0.20",
        ],
    );
}

#[test]
fn answers_are_joined_and_another_run_replaces_them() {
    let mut app = app();
    assert_eq!((app.points.len(), app.last()), (3, 3));
    let numbered = |numbers: std::ops::RangeInclusive<u64>| {
        let mut seen = seen();
        let point = seen.live.series[0].clone();
        let points = numbers.map(|sequence| crate::live::Point {
            sequence,
            ..point.clone()
        });
        seen.live.series = points.collect();
        seen
    };
    app.take(Ok(numbered(4..=5)));
    assert_eq!((app.points.len(), app.last()), (5, 5));
    #[expect(clippy::reversed_empty_ranges, reason = "there is nothing new")]
    app.take(Ok(numbered(6..=5)));
    assert_eq!((app.points.len(), app.last()), (5, 5));
    app.take(Ok(numbered(1..=2)));
    assert_eq!((app.points.len(), app.last()), (2, 2));
    app.take(Ok(numbered(3..=500)));
    assert_eq!((app.points.len(), app.last()), (300, 500));
}

#[test]
fn numbers_are_short() {
    use super::text::{ending, rate, shown, speed, time};
    let rates = [0.0, 0.04, 9.9, 9.96, 9999.0, 10_000.0, 1_500_000.0];
    assert_eq!(
        rates.map(rate),
        ["0", "0.04", "9.9", "10", "9999", "10.0k", "1.5M"]
    );
    let sizes = [0.0, 7.4, 1023.0, 1024.0, 10_239.0, 1_048_570.0, 5e12, 1e20];
    assert_eq!(
        sizes.map(speed),
        [
            "0 B/s",
            "7 B/s",
            "1023 B/s",
            "1.0 KiB/s",
            "10 KiB/s",
            "1.0 MiB/s",
            "4.5 TiB/s",
            "87 EiB/s"
        ]
    );
    let times = [
        0.000_012, 0.001, 0.05, 0.2, 1.25, 99.0, 240.0, 7200.0, 864_000.0,
    ];
    assert_eq!(
        times.map(|seconds| time(Some(seconds))),
        [
            "12 µs", "1.0 ms", "50.0 ms", "200 ms", "1.2 s", "99.0 s", "4 min", "2 h", "10 d"
        ]
    );
    assert_eq!(time(None), "-");
    assert_eq!(ending("/home/ann", 9), "/home/ann");
    assert_eq!(ending("/home/ann", 5), "…/ann");
    assert_eq!(ending("/home/ann", 0), "");
    assert_eq!(shown("a\u{7}b ä"), r"a\u{7}b ä");
}
