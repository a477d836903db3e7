#!/usr/bin/env bash
# Builds Forebay and serves a volume, installing a C compiler first where there is none:
#
#   tests/serve.sh [flags of `forebay serve`]
#
# Otherwise the same as `cargo run --release -- serve`.
set -euo pipefail
. "$(dirname "$0")/lib/needs.sh"
need_build_tools
# A relative path in a flag is the caller's.
exec cargo run --release --manifest-path "$(dirname "$0")/../Cargo.toml" --package forebay -- serve "$@"
