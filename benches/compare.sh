#!/usr/bin/env bash
# Compares the speed of this revision with another one:
#
#   benches/compare.sh BASE [PROGRAM ...]        ROUNDS=9 benches/compare.sh main call_cost
#
# Builds the benchmark programs of BASE, a revision that git knows, and of the working tree as it is, and runs both in
# turns. Prints a table; ends with status 1 where an instruction count is a tenth above that of the base, or where a
# time is 15 % above it in the median of the rounds and above it in three quarters of them (docs/performance.md).
#
# PROGRAM is one of instructions, call_cost, cache, log, file_copy, end_to_end; without any, the first four. They take
# about 1, 2, 1 and 2 minutes for each round. Instructions need Valgrind.
#
# Both are built in one target folder, so that libraries are built once; the programs of the first are moved to another
# folder before the second is built, because their names are the same.
exec </dev/null
set -euo pipefail
cd "$(dirname "$0")/.."

BASE=${1:?"usage: $0 BASE [PROGRAM ...]"}
shift
PROGRAMS=("$@")
[ $# -gt 0 ] || PROGRAMS=(instructions call_cost cache log)
BASE=$(git rev-parse --verify --quiet "$BASE^{commit}") || { echo "$0: git knows no such revision" >&2; exit 2; }
TARGET=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
export CARGO_TARGET_DIR=$TARGET CARGO_INCREMENTAL=0
command -v python3 >/dev/null || { echo "$0: python3 is missing" >&2; exit 2; }

WORK=$(mktemp -d)
finish() {
    git worktree remove --force "$WORK/tree" 2>/dev/null || true
    rm -rf "$WORK"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

# The package with a benchmark, in the current folder's revision; empty if none has it.
package_of() {
    cargo metadata --locked --no-deps --format-version 1 | python3 -c '
import json, sys
for package in json.load(sys.stdin)["packages"]:
    if any(target["name"] == sys.argv[1] and "bench" in target["kind"] for target in package["targets"]):
        print(package["name"])' "$1"
}
# build FOLDER: builds the programs of the current folder's revision into FOLDER.
build() {
    local program package
    mkdir "$1"
    for program in "${PROGRAMS[@]}"; do
        package=$(package_of "$program")
        if [ -z "$package" ]; then
            echo "$PWD has no benchmark $program" >&2
            continue
        fi
        echo "building $program of $PWD" >&2
        cargo bench --locked --quiet --no-run --message-format=json -p "$package" --bench "$program" |
            python3 -c '
import json, shutil, sys
for message in map(json.loads, sys.stdin):
    if message.get("executable") and message["target"]["name"] == sys.argv[1]:
        shutil.copy(message["executable"], sys.argv[2])' "$program" "$1/$program"
    done
}

git worktree add --quiet --detach "$WORK/tree" "$BASE"
(cd "$WORK/tree" && build "$WORK/base")
build "$WORK/own"
cargo run --locked --quiet -p forebay-measure -- compare "$WORK/base" "$WORK/own" --rounds "${ROUNDS:-5}"
