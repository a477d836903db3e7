#!/usr/bin/env bash
# Memory stays within the limits while much more is written than they allow:
#
#   tests/memory.sh
#
# Writes 4 GiB to a volume that is limited to 256 MiB of block buffers, as fast as the gateway takes them, then reads
# all of it back and compares. Asserted is the memory that the process itself has allocated (RssAnon + RssShmem, sampled
# every 100 ms): never more than limit + 128 MiB, and than limit + 64 MiB after it has been idle for a while. Four
# clients then make NAMES files at a second gateway with a memory_limit of 64 MiB, as fast as it takes them: never more
# than that, its metadata_cache of 64 MiB, EXTRA_MIB, and a third of memory_limit, which names may take. With NAMES=0
# they make none. Also reported: VmRSS and VmHWM, which also count the mapped log (RssFile), pages that the kernel
# reclaims when it needs them.
#
# Environment, with its defaults:
#   WRITE_MIB=4096 LIMIT_MIB=256 EXTRA_MIB=128 NAMES=600000
#   FB_BINARY=    the program; without it the release build of this checkout, built if need be
#   TMPDIR=/tmp   log and bucket are made here: on a disk, since in memory the log would count
. "$(dirname "$0")/lib/common.sh"

WRITE_MIB=${WRITE_MIB:-4096} LIMIT_MIB=${LIMIT_MIB:-256} EXTRA_MIB=${EXTRA_MIB:-128}
NAMES=${NAMES:-600000}
PROGRAM=$(forebay_binary)
work_folder memory
[ "$(stat -f -c %T "$WORK")" != tmpfs ] || die "TMPDIR is in memory: the log would be counted as allocated"

PORT=$(free_port)
start_gateway "$PROGRAM" "$PORT" "$WORK/log" --store "file://$WORK/bucket" --data-dir "$WORK/data" \
    --memory-limit "${LIMIT_MIB}MiB" --log-limit 1GiB
at_exit 'end_process $GATEWAY_PID 5'
python3 "$TESTS/lib/memory_peaks.py" "$GATEWAY_PID" "$WORK/peaks" &
SAMPLER=$!
at_exit 'end_process $SAMPLER 5'

client() { timeout 600 python3 "$TESTS/lib/nfs_client.py" "$1" "$PORT" big "$WRITE_MIB" | tee -a "$WORK/client"; }
check "$WRITE_MIB MiB are written" client write
check "they are read back as written" client verify
sed 's/^/        /' "$WORK/client"

kill "$SAMPLER" && wait "$SAMPLER" || true
# Unused buffers are freed within 10 s, and a second later the allocator returns them to the system.
sleep 13
idle=$(awk '/^Rss(Anon|Shmem):/ { kib += $2 } END { print int(kib / 1024) }' "/proc/$GATEWAY_PID/status")
declare -A peak
for pair in $(cat "$WORK/peaks"); do peak[${pair%=*}]=${pair#*=}; done
say "        peaks in MiB, of ${peak[samples]} samples:"
for name in OWN RssAnon RssShmem RssFile VmRSS VmHWM; do
    say "        $(printf '%-8s %5d' "$name" $((peak[$name] >> 10)))"
done
allowed=$((LIMIT_MIB + EXTRA_MIB))
check "enough samples were taken" test "${peak[samples]}" -ge 10
say "        idle: $idle"
check "idle it has no more than 64 MiB beside its limit" test "$idle" -le $((LIMIT_MIB + 64))
check "allocated memory stays below $allowed MiB" test $((peak[OWN])) -lt $((allowed << 10))
status=0
stop_gateway 120 || status=$?
check "the gateway stops cleanly" test "$status" -eq 0
[ "$FAILED" -eq 0 ] || tail -n 20 "$WORK/log"

[ "$NAMES" -gt 0 ] || { summary; exit; }
NAMES_LIMIT_MIB=64 METADATA_MIB=64
PORT=$(free_port)
start_gateway "$PROGRAM" "$PORT" "$WORK/names-log" --store "file://$WORK/names-bucket" --data-dir "$WORK/names-data" \
    --memory-limit "${NAMES_LIMIT_MIB}MiB" --metadata-cache "${METADATA_MIB}MiB" --checkpoint-bytes 8MiB --pack-bytes 2MiB \
    --log-limit 512MiB --squash no_root_squash
at_exit 'end_process $GATEWAY_PID 5'
python3 "$TESTS/lib/memory_peaks.py" "$GATEWAY_PID" "$WORK/names-peaks" &
SAMPLER=$!
at_exit 'end_process $SAMPLER 5'
makers=()
for maker in a b c d; do
    timeout 1200 python3 "$TESTS/lib/nfs_client.py" names "$PORT" "$maker" $((NAMES / 4)) >>"$WORK/names" 2>&1 &
    makers+=($!)
done
all_made() { local maker; for maker in "${makers[@]}"; do wait "$maker" || return 1; done; }
made=0
all_made || made=$?
check "$NAMES files are made" test "$made" -eq 0
sed 's/^/        /' "$WORK/names"
kill "$SAMPLER" && wait "$SAMPLER" || true
for pair in $(cat "$WORK/names-peaks"); do peak[${pair%=*}]=${pair#*=}; done
allowed=$((NAMES_LIMIT_MIB + METADATA_MIB + EXTRA_MIB + NAMES_LIMIT_MIB / 3))
say "        peak in MiB: $((peak[OWN] >> 10)), of ${peak[samples]} samples"
check "allocated memory stays below $allowed MiB while they are" test $((peak[OWN])) -lt $((allowed << 10))
status=0
stop_gateway 120 || status=$?
check "the gateway stops cleanly" test "$status" -eq 0
summary
