#!/usr/bin/env bash
# Dozens of kinds of rude and hostile clients at once beside a well-behaved one, on a gateway with 64 MiB of memory
# (crates/soak, docs/soak.md):
#
#   tests/soak.sh [SECONDS] [versitygw|minio|file] [flags of `soak` ...]
#
# Takes 30 minutes without SECONDS; 40 seconds are enough for a quick test. Asserts that memory stays below its bound,
# no acknowledged data are lost by a SIGKILL in the middle and one at the end, `flush` and `fsck` succeed, the gateway
# does not panic and logs little, no call of the well-behaved client fails or has no answer, and no rude client gets a
# wrong answer. Latencies are printed beside their goal and not asserted: they depend on the machine too. The bucket is
# versitygw behind a link of 4 MiB/s, which keeps memory full; a folder is much faster. Flags are, for example,
# `--only deaf,drip`, or `--each` for one run of SECONDS with each kind alone.
#
# Environment, with its defaults:
#   FB_BINARY=          the program; without it the release build of this checkout, built if need be
#   SOAK_BINARY=        the clients; without it a debug build
#   WORK_PARENT=/tmp    parent of the work folders: on a disk, because in memory the log would count as memory. The work
#                       folder of a failed run is kept there.
#   TEST_BIN=~/.cache/forebay-tests/bin   where versitygw and MinIO are, or are built into
. "$(dirname "$0")/lib/common.sh"

LENGTH=1800 STORE=versitygw FLAGS=()
for argument in "$@"; do
    case $argument in
    versitygw | minio | file) STORE=$argument ;;
    *[!0-9]*) FLAGS+=("$argument") ;;
    *) if [ ${#FLAGS[@]} -gt 0 ]; then FLAGS+=("$argument"); else LENGTH=$argument; fi ;;
    esac
done

PROGRAM=$(forebay_binary)
SOAK=$(soak_binary)
work_folder soak "${WORK_PARENT:-}"
[ "$(stat -f -c %T "$WORK")" != tmpfs ] || die "WORK_PARENT is in memory: the log would be counted as allocated"
case $STORE in
file) ;;
minio) start_minio "$(s3_server minio)" "$WORK/minio" "$(free_port)" ;;
versitygw) start_versitygw "$(s3_server versitygw)" "$WORK/versitygw" "$(free_port)" ;;
esac
if [ "$STORE" != file ]; then
    at_exit "end_process $STORE_PID"
    FLAGS+=(--store s3://forebay/soak)
fi
say "$LENGTH s, $STORE, $("$PROGRAM" --version)"
began=$(seconds_now)
status=0
"$SOAK" "$LENGTH" --program "$PROGRAM" --folder "${WORK_PARENT:-${TMPDIR:-/tmp}}" "${FLAGS[@]}" &
harness=$!
at_exit "end_process $harness"
wait "$harness" || status=$?
if [ "$status" -ne 0 ] && [ "$STORE" != file ]; then
    # Out of the way of the clean-up.
    mv "$WORK/$STORE" "$WORK.$STORE"
    say "bucket kept: $WORK.$STORE"
fi
say "$(seconds_since "$began") s"
exit "$status"
