//! Instruction counts of the important paths, without disk, network and clock. `cargo bench --bench instructions`.
//!
//! ```text
//! cargo bench --bench instructions                                              prints them
//! cargo bench --bench instructions -- --check benches/instructions.baseline     fails if one costs a tenth more
//! cargo bench --bench instructions -- --update benches/instructions.baseline    keeps them from now on
//! cargo bench --bench instructions -- cache fs/create                           only keys that contain one of these
//! ```
//!
//! Valgrind counts them ([`forebay_measure::instructions`]). Each operation runs in the state of a gateway that has
//! served for a while: buffers exist, tables have their size. Only the thread that executes the operation is counted;
//! work that it leaves to other threads (flushing, uploading, publishing) is not part of it.
//!
//! A count does not show waiting for memory, locks held by others, or system calls; times do (docs/performance.md). But
//! it is the same on a busy machine as on an idle one, so that a change of a few percent shows.
//!
//! Run by `cargo test`, each operation is done a few times, and so shows that it works.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]
// This program prints its results.
#![allow(clippy::print_stdout)]

mod blocks;
mod calls;
mod engine;
mod frames;
mod layer;
mod log;
mod operation;
mod report;
#[path = "../surroundings/mod.rs"]
mod surroundings;

use std::env;
use std::error::Error;
use std::process::ExitCode;

use operation::Operation;

/// All of them, layer by layer.
fn operations() -> Vec<Operation> {
    [
        engine::operations(),
        layer::operations(),
        blocks::operations(),
        log::operations(),
        frames::operations(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    // What the program starts itself for, under Valgrind.
    if let [option, key, turns] = arguments.as_slice()
        && option == operation::LOOP
    {
        let found = operations().into_iter().find(|one| one.key == *key);
        found.ok_or("no such operation")?.run(turns.parse()?);
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        for operation in operations() {
            operation.try_out();
            println!("{}", operation.key);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let order = report::Order::parse(arguments.into_iter().filter(|one| one != "--bench"))?;
    order.carry_out(&operations())
}
