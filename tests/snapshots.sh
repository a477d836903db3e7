#!/usr/bin/env bash
# Snapshots and the trash as seen through the Linux kernel's NFS client: their files, numbers and rights, and that programs which
# walk through a tree do not enter them unasked:
#
#   tests/snapshots.sh
#
# Needs root, to mount, and rsync. Where the kernel has no NFS, $NFS_RUNNER names a program that boots one that has, as for
# quota.sh.
#
# Environment, with its defaults:
#   NFS_RUNNER=         see above
#   LIMIT_S=300         time limit of each part
#   FB_BINARY=          the program; without it the release build of this checkout, built if need be
. "$(dirname "$0")/lib/common.sh"

LIMIT_S=${LIMIT_S:-300}
need_kernel_client
command -v rsync >/dev/null || die "rsync is missing: install it"
PROGRAM=$(forebay_binary)
work_folder snapshots
GATEWAY=$(mktemp -d /dev/shm/forebay-snapshots.XXXXXX)
at_exit "rm -rf '$GATEWAY'"
mkdir "$WORK/shared"

# part PART WHAT: the client's half of a part; counts whether all its checks succeed.
part() {
    local said status=0
    said=$(with_mount "$PORT" vers=3,tcp,hard,noacl "$LIMIT_S" \
        "'$TESTS/lib/snapshots-client.sh' $1 '$WORK/shared'" 2>&1) || status=$?
    say "$said"
    if [ "$status" -eq 0 ]; then pass "$2"; else fail "$2"; fi
}
snapshot() { "$PROGRAM" snapshot "$@" --data-dir "$GATEWAY/data" >/dev/null; }
start() {
    start_gateway "$PROGRAM" "$PORT" "$GATEWAY/log" --store "file://$GATEWAY/bucket" --data-dir "$GATEWAY/data" \
        --squash none --log-segment 64MiB --log-limit 512MiB "$@"
}
at_exit 'end_process "$GATEWAY_PID" 20'

PORT=$(free_port)
start
part make "a tree is made"
check "a snapshot is made" snapshot create then
# Before the bucket has it; the log does.
kill -9 "$GATEWAY_PID"
wait "$GATEWAY_PID" 2>/dev/null || true
start
part change "the tree is changed"
check "another snapshot is made" snapshot create later
part hidden "hidden snapshots"
if stop_gateway; then pass "the gateway stops in order"; else fail "the gateway stops in order"; fi
start --snapshot-directory visible
part visible "visible snapshots"
restore() { "$PROGRAM" restore "$@" --data-dir "$GATEWAY/data" >/dev/null; }
check "a tree is restored beside the live one" restore /tree --from then --to /back
check "a file is restored elsewhere" restore /tree/large --from later --to /late/large
check "a file is restored in place of another" restore /tree/large --from then --to /late/large --replace
part restored "a restored tree"
check "the first snapshot is deleted" snapshot delete then
part deleted "a deleted snapshot"
if stop_gateway; then pass "the gateway stops in order"; else fail "the gateway stops in order"; fi
start --trash 24h
part trash "the trash"
kill -9 "$GATEWAY_PID"
wait "$GATEWAY_PID" 2>/dev/null || true
start --trash 24h --trash-directory visible
part trash_again "the trash after a kill"
if stop_gateway; then pass "the gateway stops in order"; else fail "the gateway stops in order"; fi
summary
