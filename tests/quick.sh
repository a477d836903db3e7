#!/usr/bin/env bash
# Builds and runs all tests that need only Rust, and installs a C compiler first if there is none:
#
#   tests/quick.sh [filter and options of `cargo test`]
#
# Otherwise the same as `cargo test --workspace`. Tests that need root or an S3 server are ignored, with the reason;
# `.ci/run` runs those as well.
set -euo pipefail
. "$(dirname "$0")/lib/needs.sh"
need_build_tools
exec cargo test --manifest-path "$(dirname "$0")/../Cargo.toml" --workspace "$@"
