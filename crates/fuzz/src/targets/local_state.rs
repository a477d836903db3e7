//! The file `state` of a gateway's local folder.
//!
//! For every text: a state that is read is the same after writing and reading; with a wrong checksum, nothing is read.
//!
//! ```text
//! input    flags: 1    text
//! flags    1  repair the checksum
//! ```

use forebay_environment::state_file::LocalState;

use crate::{Target, input::Input, repair};

/// The target.
pub const TARGET: Target = Target {
    name: "local_state",
    run,
    seeds,
    max_bytes: 600,
};

/// Reads the text, and writes it again.
fn local_state(text: &str) -> Result<String, &'static str> {
    LocalState::decode(text).map(|state| state.encode())
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let repaired = input.u8() & 1 != 0;
    let text = match repaired {
        true => repair::text(input.rest()),
        false => input.rest().to_vec(),
    };
    let Ok(text) = std::str::from_utf8(&text) else {
        return;
    };
    let Ok(written) = local_state(text) else {
        return;
    };
    assert_eq!(local_state(&written).as_ref(), Ok(&written));
    let damaged = written.replacen("epoch ", "epoch 1", 1);
    assert!(local_state(&damaged).is_err(), "damage was not noticed");
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let body = "forebay-state 1\nvolume 6f0c00000000000000000000000000ff\ngateway 51ab0000000000000000000000000001\n\
                epoch 7\nintent 8\nverifier 0011223344556677\nboot 0f3a0000000000000000000000000000\nclean 1\n";
    let input = |flags: u8, text: &str| [&[flags], &repair::text(text.as_bytes())[..]].concat();
    vec![
        ("clean", input(1, body)),
        ("as-it-is", input(0, &body.replace("clean 1", "clean 0"))),
        (
            "largest-epoch",
            input(1, &body.replace("epoch 7", "epoch 18446744073709551615")),
        ),
        (
            "other-version",
            input(1, &body.replace("state 1", "state 2")),
        ),
    ]
}
