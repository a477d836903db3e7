//! The tables, in Markdown.

use std::fmt::Write;

use forebay_measure::Rounds;
use forebay_measure::table::{percent, times, whole};

use crate::instructions::Counts;
use crate::paths::Path;
use crate::rounds::{
    CONNECTIONS, ONE_AT_A_TIME, SHARED, alone, rate, shared, socket_rate, through_socket, unshared,
};
use crate::socket::DEPTH;

fn name(path: Path) -> &'static str {
    match path {
        Path::Getattr => "GETATTR in the engine, from its record to its reply",
        Path::Setattr => "SETATTR in the engine, kept by the replay cache",
        Path::ReplayFirst => "replay cache, a call that must not be done twice",
        Path::ReplayIdempotent => "replay cache, a call that may be repeated",
        Path::Permission => "rules and permissions",
        Path::Admission => "of these what a GETATTR passes",
        Path::Handle => "authentication of the handle",
        Path::Address => "rules by address (16 rules; once a connection)",
    }
}

/// All tables of this build.
pub(crate) fn tables(rounds: &Rounds, instructions: &Counts) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = parts(&mut text, rounds, instructions);
    let _ = connections(&mut text, rounds);
    text
}

/// The table of a build that was measured alternately with this one.
pub(crate) fn beside(rounds: &Rounds, other: &Rounds) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = pairs(&mut text, rounds, other);
    text
}

fn parts(text: &mut String, rounds: &Rounds, instructions: &Counts) -> std::fmt::Result {
    let socket = through_socket(1);
    writeln!(
        text,
        "One connection, medians of {} rounds (quartiles):\n",
        rounds.count()
    )?;
    writeln!(
        text,
        "| | processor ns | instructions | of a GETATTR through the socket |"
    )?;
    writeln!(text, "|---|---|---|---|")?;
    writeln!(
        text,
        "| GETATTR through the socket, {DEPTH} under way | {} | {} | 100 % |",
        whole(rounds.median(&socket)),
        instructions.through_socket(),
    )?;
    writeln!(
        text,
        "| GETATTR through the socket, one at a time | {} | | {} |",
        whole(rounds.median(ONE_AT_A_TIME)),
        percent(rounds.ratio(ONE_AT_A_TIME, &socket)),
    )?;
    for path in Path::ALL {
        writeln!(
            text,
            "| {} | {} | {} | {} |",
            name(path),
            whole(rounds.median(&alone(path))),
            instructions.of(path),
            percent(rounds.ratio(&alone(path), &socket)),
        )?;
    }
    Ok(())
}

fn connections(text: &mut String, rounds: &Rounds) -> std::fmt::Result {
    writeln!(
        text,
        "\nGETATTR through the socket, and what the parts cost beside it:\n"
    )?;
    writeln!(
        text,
        "| connections | thousand a second | processor ns | replay cache and rules, as a GETATTR passes them | a kept call | rules and permissions |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|")?;
    for count in CONNECTIONS {
        let socket = through_socket(count);
        let passed = [Path::ReplayIdempotent, Path::Admission].map(|path| shared(path, count));
        writeln!(
            text,
            "| {count} | {:.0} | {} | {} | {} | {} |",
            rounds.median(&socket_rate(count)).value,
            whole(rounds.median(&socket)),
            percent(rounds.ratio_of_sum(&passed, &socket)),
            percent(rounds.ratio(&shared(Path::ReplayFirst, count), &socket)),
            percent(rounds.ratio(&shared(Path::Permission, count), &socket)),
        )?;
    }
    for path in SHARED {
        writeln!(text, "\n{}, on two threads:\n", name(path))?;
        writeln!(
            text,
            "| connections | thousand a second | processor ns | of that with 1 | of that when nothing is shared |"
        )?;
        writeln!(text, "|---|---|---|---|---|")?;
        for count in CONNECTIONS {
            let key = shared(path, count);
            writeln!(
                text,
                "| {count} | {:.0} | {} | {} | {} |",
                rounds.median(&rate(path, count)).value,
                whole(rounds.median(&key)),
                times(rounds.ratio(&key, &shared(path, 1))),
                times(rounds.ratio(&key, &unshared(path, count))),
            )?;
        }
    }
    Ok(())
}

fn pairs(text: &mut String, rounds: &Rounds, other: &Rounds) -> std::fmt::Result {
    writeln!(
        text,
        "Processor time beside that of the other build, in turns:\n"
    )?;
    writeln!(text, "| | other, ns | this, ns | ratio |")?;
    writeln!(text, "|---|---|---|---|")?;
    let mut row = |name: &str, key: &str| {
        writeln!(
            text,
            "| {name} | {} | {} | {} |",
            whole(other.median(key)),
            whole(rounds.median(key)),
            times(rounds.ratio_to(other, key)),
        )
    };
    for count in [1, 8, 64] {
        let what = format!("GETATTR through the socket, connections: {count}");
        row(&what, &through_socket(count))?;
    }
    for path in Path::ALL {
        row(name(path), &alone(path))?;
    }
    for count in [2, 64] {
        let what = format!("{}, connections: {count}", name(Path::ReplayFirst));
        row(&what, &shared(Path::ReplayFirst, count))?;
    }
    Ok(())
}
