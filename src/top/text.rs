//! Numbers and names for people, short.

/// A number of bytes, in at most eight characters.
pub(super) fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut units) = (bytes.max(0.0), UNITS.iter());
    let mut unit = units.next().copied().unwrap_or_default();
    let whole = unit;
    for next in units {
        if value < 1023.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == whole || value >= 9.95 {
        format!("{value:.0} {unit}")
    } else {
        format!("{value:.1} {unit}")
    }
}

/// A number of bytes per second.
pub(super) fn speed(per_second: f64) -> String {
    format!("{}/s", bytes(per_second))
}

/// A number of events per second, without the unit.
pub(super) fn rate(per_second: f64) -> String {
    match per_second {
        none if none <= 0.0 => "0".to_owned(),
        rare if rare < 0.095 => format!("{rare:.2}"),
        few if few < 9.95 => format!("{few:.1}"),
        some if some < 9999.5 => format!("{some:.0}"),
        many if many < 999_950.0 => format!("{:.1}k", many / 1e3),
        very_many => format!("{:.1}M", very_many / 1e6),
    }
}

/// A time; `-` for none.
pub(super) fn time(seconds: Option<f64>) -> String {
    let Some(seconds) = seconds else {
        return "-".to_owned();
    };
    match seconds {
        short if short < 0.000_999_5 => format!("{:.0} µs", short * 1e6),
        short if short < 0.099_95 => format!("{:.1} ms", short * 1e3),
        short if short < 0.999_5 => format!("{:.0} ms", short * 1e3),
        medium if medium < 99.95 => format!("{medium:.1} s"),
        long if long < 5999.5 => format!("{:.0} min", long / 60.0),
        long if long < 172_800.0 => format!("{:.0} h", long / 3600.0),
        very_long => format!("{:.0} d", very_long / 86_400.0),
    }
}

/// A name or message from elsewhere on one line: a terminal must not take it for an order.
pub(super) fn shown(text: &str) -> String {
    let is_plain = |c: char| !c.is_control() && (c.is_alphanumeric() || c.is_ascii() || c == '…');
    let escaped = text.chars().map(|c| match is_plain(c) {
        true => c.to_string(),
        false => c.escape_unicode().to_string(),
    });
    escaped.collect()
}

/// The last `width` characters, with `…` in the place of what is cut off at the beginning.
pub(super) fn ending(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let tail = text.chars().skip(count - kept);
    let cut = if width == 0 { None } else { Some('…') };
    cut.into_iter().chain(tail).collect()
}
