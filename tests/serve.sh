#!/usr/bin/env bash
# Builds Forebay and serves a volume, and installs a C compiler first if there is none:
#
#   tests/serve.sh [flags of `forebay serve`]
#
# Otherwise the same as `cargo run --release -- serve`.
set -euo pipefail
. "$(dirname "$0")/lib/needs.sh"
need_build_tools
# A relative path in a flag is relative to the caller's folder.
exec cargo run --release --manifest-path "$(dirname "$0")/../Cargo.toml" --package forebay -- serve "$@"
