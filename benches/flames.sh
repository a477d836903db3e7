#!/usr/bin/env bash
# Flame graphs of the gateway while a client writes, reads and creates over NFS: where its processor time goes.
#
#   benches/flames.sh [FOLDER]
#
# The bucket, the log and everything else are in memory, so that the graphs show Forebay and not a disk. Puts one SVG
# for each workload into FOLDER (target/flames by default); a browser opens them, and a click enlarges a frame. Needs
# perf; builds everything else that is missing. benches/results/flames.md has
# the widest frames and what was done about them.
#
# Environment:
#   FB_BINARY=, BESIDE_BINARY=   program and client; without them the release builds of this checkout
#   ROUNDS=10                    number of times that each workload is done
#   KEEP_FOLDED=FOLDER           puts the stacks there as well, one per line
. "$(dirname "$0")/../tests/lib/common.sh"

WORKLOADS=(SequentialWrite RandomWrite SequentialRead RandomRead Create)
INFERNO=0.12.3

# inferno_folder: prints the folder of its programs, and builds them when they are missing.
inferno_folder() {
    local folder=$TEST_BIN/inferno-$INFERNO
    if [ ! -x "$folder/bin/inferno-flamegraph" ]; then
        say "building inferno $INFERNO (once)" >&2
        (
            unset CARGO_TARGET_DIR
            cargo install --quiet --locked --version "$INFERNO" --root "$folder" inferno >&2
        ) || die "cannot build inferno $INFERNO"
    fi
    say "$folder/bin"
}

FOLDER=${1:-$PROJECT/target/flames}
need_programs perf:linux-perf
PROGRAM=$(forebay_binary) CLIENT=$(bench_binary beside) INFERNO_BIN=$(inferno_folder)
mkdir -p "$FOLDER"
work_folder flames /dev/shm

profile() {
    local workload=$1 port status=0
    port=$(free_port)
    start_gateway "$PROGRAM" "$port" "$WORK/$workload.log" \
        --store "file://$WORK/$workload.bucket" --data-dir "$WORK/$workload.data"
    mkfifo "$WORK/$workload.pipe"
    # Kept open, because perf would take the end of the first command for the end of all.
    exec 9<>"$WORK/$workload.pipe"
    perf record --quiet --freq 1999 --call-graph dwarf,16384 --delay -1 --control "fifo:$WORK/$workload.pipe" \
        --pid "$GATEWAY_PID" --output "$WORK/$workload.perf" 2>"$WORK/$workload.perf.log" &
    local perf=$!
    sleep 1
    "$CLIENT" --bench --server "Forebay=127.0.0.1:$port:/" --only "$workload" --rounds "${ROUNDS:-10}" \
        --profiler "$WORK/$workload.pipe" >"$WORK/$workload.table" || status=$?
    kill -INT "$perf" && wait "$perf" || true
    exec 9>&-
    stop_gateway || status=$?
    [ "$status" = 0 ] || die "$workload has failed"
    perf script --no-inline --input "$WORK/$workload.perf" 2>>"$WORK/$workload.perf.log" |
        "$INFERNO_BIN/inferno-collapse-perf" >"$WORK/$workload.folded" 2>>"$WORK/$workload.perf.log"
    "$INFERNO_BIN/inferno-flamegraph" --title "Forebay: $workload" --minwidth 0.2 --hash \
        <"$WORK/$workload.folded" >"$FOLDER/$workload.svg"
    say "$FOLDER/$workload.svg: $(awk '{ all += $NF } END { printf "%.2f", all / 1e9 }' "$WORK/$workload.folded") s of processor time"
    rm -rf "${WORK:?}/$workload".{bucket,data,perf}
}

for workload in "${WORKLOADS[@]}"; do profile "$workload"; done
[ -z "${KEEP_FOLDED:-}" ] || cp "$WORK"/*.folded "$KEEP_FOLDED"
