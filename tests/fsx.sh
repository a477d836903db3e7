#!/usr/bin/env bash
# Random file operations through the Linux kernel's NFS client, and two such clients on one gateway:
#
#   tests/fsx.sh [--long] [--seed N]
#
# fsx writes, maps, truncates, copies, syncs, closes and opens again at random, and compares every byte that it reads
# with the bytes that it has written, including reads through maps. Files are small (256 KiB, for many changes of the
# same bytes) and larger than two blocks (9 MiB). The gateway publishes every 200 ms during the operations, and snapshots
# are made and deleted. In each that is there at the end, the files that were finished before are compared byte by byte.
# --long runs a million operations instead of 6,000.
#
# Then two clients with caches of their own take turns (lib/close_to_open.py): after one has closed a file, the other
# sees its state when it opens it, bytes and sizes with the ordinary mount options, names with actimeo=0 and
# lookupcache=none.
#
# Needs root, to mount. Where the kernel has no NFS, $NFS_RUNNER names a program that boots one that has: see posix.sh.
#
# Environment, with its defaults:
#   NFS_RUNNER=         see above
#   OPERATIONS=         operations of fsx in all; 6000, with --long 1000000
#   STEPS=              steps of each kind by the two clients; 150, with --long 3000
#   LIMIT_S=            time limit of one part; 300, with --long 14400
#   FB_BINARY=          the program; without it the release build of this checkout, built if need be
#   TEST_BIN=~/.cache/forebay-tests/bin   where fsx is, or is built into
. "$(dirname "$0")/lib/common.sh"

LONG= SEED=$RANDOM
while [ $# -gt 0 ]; do
    case $1 in
    --long) LONG=yes ;;
    --seed)
        SEED=${2:?--seed needs a number}
        shift
        ;;
    *) die "usage: $0 [--long] [--seed N]" ;;
    esac
    shift
done
RUNS=4
if [ -n "$LONG" ]; then
    RUNS=20
    : "${OPERATIONS:=1000000}" "${STEPS:=3000}" "${LIMIT_S:=14400}"
fi
: "${OPERATIONS:=6000}" "${STEPS:=150}" "${LIMIT_S:=300}"

need_kernel_client
PROGRAM=$(forebay_binary)
FSX=$(cargo_tool fsx 0.3.2)
work_folder fsx
GATEWAY=$(mktemp -d /dev/shm/forebay-fsx.XXXXXX)
at_exit "rm -rf '$GATEWAY'"
say "seed $SEED"

# Without the operations that NFSv3 has no procedure for: posix_fallocate and punch_hole.
fsx_configuration() {
    cat <<TOML
flen = $1
[opsize]
max = $2
[weights]
close_open = 3
invalidate = 2
read = 10
write = 10
mapread = 10
mapwrite = 10
truncate = 5
fsync = 1
fdatasync = 1
posix_fadvise = 4
sendfile = 3
copy_file_range = 3
TOML
}
fsx_configuration $((256 << 10)) $((64 << 10)) >"$WORK/fsx-small.toml"
fsx_configuration $((9 << 20)) $((256 << 10)) >"$WORK/fsx-large.toml"

PORT=$(free_port)
start_gateway "$PROGRAM" "$PORT" "$GATEWAY/log" --store "file://$GATEWAY/bucket" --data-dir "$GATEWAY/data" \
    --squash none --log-segment 64MiB --log-limit 512MiB --memory-limit 64MiB --checkpoint-bytes 16MiB \
    --checkpoint-interval 200ms
at_exit 'end_process "$GATEWAY_PID" 20'

# ---- one client, at random ---------------------------------------------------------------------

runs=()
# Large files take longer for the same work: one run in four.
for ((run = 0; run < RUNS; run++)); do
    if [ $((run % 4)) -eq 3 ]; then runs+=("large:$((SEED + run))"); else runs+=("small:$((SEED + run))"); fi
done
# Snapshots of the finished file, and of whatever fsx is doing. Only a snapshot that the bucket has can be deleted.
ask() { "$PROGRAM" "$@" --data-dir "$GATEWAY/data" >>"$GATEWAY/snapshots" 2>&1; }
make_snapshots() {
    local number last=
    appears "$WORK/finished" "$LIMIT_S" || return 1
    for ((number = 1; ; number++)); do
        # All finished files are in the last one.
        [ ! -e "$WORK/compare" ] || last=yes
        ask snapshot create "number-$number" || return 1
        [ "$number" -le 5 ] || { ask flush && ask snapshot delete "number-$((number - 5))"; } || return 1
        echo "$number" >"$GATEWAY/number"
        [ -z "$last" ] || break
        sleep 0.5
    done
    ask flush && touch "$WORK/compare.done"
}
make_snapshots &
SNAPSHOTS=$!
at_exit 'end_process "$SNAPSHOTS"'

began=$(seconds_now)
if with_mount "$PORT" vers=3,tcp,hard,noacl "$LIMIT_S" \
    "$TESTS/lib/fsx-client.sh '$FSX' '$WORK' $((OPERATIONS / RUNS)) ${runs[*]}"; then
    pass "fsx: $((OPERATIONS / RUNS * RUNS)) operations of $RUNS seeds from $SEED on"
else
    fail "fsx: seeds from $SEED on"
fi
say "        $(seconds_since "$began") s"
# If the client did not get there.
touch "$WORK/finished" "$WORK/compare"
if wait "$SNAPSHOTS"; then
    pass "$(cat "$GATEWAY/number") snapshots were made meanwhile"
else
    fail "snapshots: $(tail -n 3 "$GATEWAY/snapshots")"
fi

# ---- two clients -------------------------------------------------------------------------------

# two_clients KIND MOUNT_OPTIONS
two_clients() {
    local kind=$1 options=$2 me pids=() status=0
    mkdir "$WORK/$kind"
    for me in 0 1; do
        (with_mount "$PORT" "vers=3,tcp,hard,noacl$options" "$LIMIT_S" \
            "/usr/bin/python3 $TESTS/lib/close_to_open.py \"\$MOUNT\" '$WORK/$kind' $me $SEED $STEPS $kind") &
        pids+=($!)
    done
    for me in "${pids[@]}"; do wait "$me" || status=1; done
    return "$status"
}
for kind in data names; do
    began=$(seconds_now)
    options=
    # NFSv3 lets a client cache names and attributes of directories for a while; close-to-open is about files.
    [ "$kind" = data ] || options=,actimeo=0,lookupcache=none
    if two_clients "$kind" "$options"; then
        pass "two clients see each other's $kind after close and open: $STEPS steps of seed $SEED"
    else
        fail "two clients, $kind, seed $SEED"
    fi
    say "        $(seconds_since "$began") s"
done
if stop_gateway; then pass "the gateway stops in order"; else fail "the gateway stops in order"; fi
summary
