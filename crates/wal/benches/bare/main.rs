//! The log beside the minimal work that no log can avoid, in turns. `cargo bench -p forebay-wal --bench bare`.
//!
//! * [Append](append): beside a copy and a checksum of the same bytes.
//! * [Waiting for a segment](segments): how often and how long an append at full speed finds no segment prepared.
//! * [Commit](commit): 64 clients that each wait for their record, beside 64 times the rate of bare flushes. Also on
//!   a disk that [takes 4 ms](slow) for a flush.
//! * [Flushed](flushed): records that reach the disk a little later, beside system calls that write them.
//! * [Mapped](mapped): stores into a mapped file, which do the minimal work, beside system calls that write.
//! * [Kernel](kernel): the kernel's cost per MiB of a segment, from its first page to its flush.
//! * [Stream](stream): a long write with one commit at its end, beside `write` and `fdatasync`.
//!
//! Everything lies in the temporary folder (`TMPDIR`), which has to be on the disk under test.
//!
//! * `append`, `segments`, `commit`, `flushed`, `mapped`, `kernel`, `stream`: only tables whose names contain one of
//!   these words.
//! * `--rounds N`: number of rounds; by default 9 of the works that write a GiB in each, and 31 of the others.
//! * `--update FILE`: writes the tables into that file, between their marks. The last three have marks of their own.
//!
//! `cargo test` runs a little of each, to show that it works.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers here are small"
)]

mod append;
mod clock;
mod commit;
mod disk;
mod flushed;
mod kernel;
mod log;
mod mapped;
mod region;
mod segments;
mod slow;
mod stream;

use std::error::Error;

use forebay_measure::{Arguments, Machine};

const COMMAND: &str = "cargo bench -p forebay-wal --bench bare";

/// Anything that ends a benchmark.
type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let arguments = Arguments::of_this(&["--rounds"], &[])?;
    let rounds = |usual| match arguments.after("--rounds") {
        Some(count) => count.parse().map_err(Failure::from),
        None => Ok(if arguments.full() { usual } else { 1 }),
    };
    let full = arguments.full();
    let mut tables = Vec::new();
    if arguments.chooses("append") {
        tables.push(append::table(rounds(31)?, full)?);
    }
    if arguments.chooses("segments") {
        tables.push(segments::table(rounds(9)?, full)?);
    }
    if arguments.chooses("commit") {
        tables.push(commit::table(rounds(31)?, full)?);
    }
    if arguments.chooses("flushed") {
        tables.push(flushed::table(rounds(9)?, full)?);
    }
    let machine = Machine::this();
    let figures = "medians, quartiles in brackets";
    if !tables.is_empty() {
        let caption = machine.caption(COMMAND, figures);
        arguments.show("bare", &format!("{caption}\n\n{}", tables.join("\n")))?;
    }
    let show = |name: &str, table: String| {
        let caption = machine.caption(&format!("{COMMAND} -- {name}"), figures);
        arguments.show(&format!("bare, {name}"), &format!("{caption}\n\n{table}"))
    };
    if arguments.chooses("mapped") {
        show("mapped", mapped::table(rounds(31)?, full)?)?;
    }
    if arguments.chooses("kernel") {
        show("kernel", kernel::table(rounds(31)?, full)?)?;
    }
    if arguments.chooses("stream") {
        show("stream", stream::table(rounds(9)?, full)?)?;
    }
    Ok(())
}
