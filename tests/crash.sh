#!/usr/bin/env bash
# Kills the real program under load, again and again, and compares its state with all acknowledged operations
# (crates/crash):
#
#   tests/crash.sh [--long] [--sealed] [minio]
#
# Runs each mode of the harness: kill, recovery (killed again while it starts, with a log of minimal size), power-cut
# (data that were not durable are lost or torn) and lost-machine (the local folder is deleted). A few kills of each;
# with --long at least 320 in all, more than 200 of which may lose nothing. The bucket is a folder, or with `minio`
# MinIO; with --sealed the volume and its log are sealed.
#
# Environment, with its defaults:
#   SEED=               seed of all random choices; another one each time by default. It is printed.
#   KILLS=4             least number of kills in each mode; 80 with --long
#   SECONDS_EACH=90     no further kill of a mode after this time; 900 with --long
#   MODE=all            only this mode
#   WRITERS=4           clients that write
#   FB_BINARY=          the program; without it the release build of this checkout, built if need be
#   CRASH_BINARY=       the harness; without it a debug build
#   WORK_PARENT=        parent of the work folders; by default the place for temporary files
#   TEST_BIN=~/.cache/forebay-tests/bin   where MinIO is, or is built into
. "$(dirname "$0")/lib/common.sh"

KILLS=${KILLS:-} SECONDS_EACH=${SECONDS_EACH:-} STORE=file SEALED=()
for argument in "$@"; do
    case $argument in
    --long) KILLS=${KILLS:-80} SECONDS_EACH=${SECONDS_EACH:-900} ;;
    --sealed) SEALED=(--sealed) ;;
    file | minio) STORE=$argument ;;
    *) die "usage: $0 [--long] [--sealed] [minio]" ;;
    esac
done

PROGRAM=$(forebay_binary)
CRASH=$(crash_binary)
FLAGS=(--mode "${MODE:-all}" --kills "${KILLS:-4}" --seconds "${SECONDS_EACH:-90}" --writers "${WRITERS:-4}"
    --program "$PROGRAM" "${SEALED[@]}")
[ -z "${SEED:-}" ] || FLAGS+=(--seed "$SEED")
[ -z "${WORK_PARENT:-}" ] || FLAGS+=(--folder "$WORK_PARENT")
if [ "$STORE" = minio ]; then
    minio=$(s3_server minio)
    work_folder crash "${WORK_PARENT:-}"
    start_minio "$minio" "$WORK/minio" "$(free_port)"
    at_exit "end_process $STORE_PID"
    FLAGS+=(--store "s3://forebay/crash")
fi
say "$STORE, $("$PROGRAM" --version)"
began=$(seconds_now)
status=0
"$CRASH" run "${FLAGS[@]}" &
harness=$!
at_exit "end_process $harness"
wait "$harness" || status=$?
say "$(seconds_since "$began") s"
exit "$status"
