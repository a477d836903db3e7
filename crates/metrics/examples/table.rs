//! Prints the table of metrics as docs/metrics.md has it.

// A program that prints.
#![allow(clippy::print_stdout)]

fn main() {
    print!("{}", forebay_metrics::table::markdown());
}
