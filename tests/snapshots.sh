#!/usr/bin/env bash
# Snapshots and the trash as seen through the Linux kernel's NFS client: their files, numbers and rights, and that programs which
# walk through a tree do not enter them unasked, or leave with a copy of the one tree that they were given. A file that is
# open in a snapshot stays readable over a restart of the gateway, and is stale when the snapshot is deleted:
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

client() {
    with_mount "$PORT" vers=3,tcp,hard,noacl "$LIMIT_S" "'$TESTS/lib/snapshots-client.sh' $1 '$WORK/shared'" 2>&1
}
# part PART WHAT [COMMAND ...]: the client's half of a part, with the command beside it, which takes turns with it; counts
# whether all its checks succeed.
part() {
    local part=$1 what=$2 status=0 client
    shift 2
    client "$part" >"$WORK/said" &
    client=$!
    [ $# -eq 0 ] || "$@"
    wait "$client" || status=$?
    cat "$WORK/said"
    if [ "$status" -eq 0 ]; then pass "$what"; else fail "$what"; fi
}
# step FILE NAME COMMAND ...: when the client's half has made the file, counts whether the command succeeds, and makes
# FILE.done. Not by `check`: the command may start a gateway, which is a child of this shell.
step() {
    local file=$WORK/shared/$1 name=$2
    shift 2
    if appears "$file" "$LIMIT_S" && "$@"; then pass "$name"; else fail "$name"; fi
    touch "$file.done"
}
nothing_shows() { ! grep -rqF -- "$1" "$GATEWAY/bucket"; }
snapshot() { "$PROGRAM" snapshot "$@" --data-dir "$GATEWAY/data" >/dev/null; }
start() {
    start_gateway "$PROGRAM" "$PORT" "$GATEWAY/log" --store "file://$GATEWAY/bucket" --data-dir "$GATEWAY/data" \
        --squash none --log-segment 64MiB --log-limit 512MiB "$@"
}
killed() {
    kill -9 "$GATEWAY_PID"
    wait "$GATEWAY_PID" 2>/dev/null || true
}
at_exit 'end_process "$GATEWAY_PID" 20'

PORT=$(free_port)
start
part make "a tree is made"
check "a snapshot is made" snapshot create then
# Before the bucket has it; the log does.
killed
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
again() { killed && start --snapshot-directory visible; }
beside_open_files() {
    step opened "the gateway starts again" again
    step read "the first snapshot is deleted" snapshot delete then
}
part open "files that are open" beside_open_files
part deleted "a deleted snapshot"
if stop_gateway; then pass "the gateway stops in order"; else fail "the gateway stops in order"; fi
start --trash 24h
part trash "the trash"
killed
start --trash 24h --trash-directory visible
part trash_again "the trash after a kill"
if stop_gateway; then pass "the gateway stops in order"; else fail "the gateway stops in order"; fi

# A sealed volume, with a sealed log.
rm -rf "$GATEWAY/bucket" "$GATEWAY/data" "$WORK/shared"
mkdir "$WORK/shared"
(umask 077 && head -c 24 /dev/urandom | base64 >"$GATEWAY/passphrase")
start_sealed() {
    start --snapshot-directory visible --encryption aes-256-gcm --passphrase-file "$GATEWAY/passphrase" --seal-log on
}
again() { snapshot create then && killed && start_sealed; }
beside_sealed() {
    step made "a snapshot of a sealed volume is made, and the gateway killed" again
    step changed "another snapshot is made" snapshot create later
}
start_sealed
part sealed "snapshots of a sealed volume" beside_sealed
if stop_gateway; then pass "the gateway stops in order"; else fail "the gateway stops in order"; fi
# A name in the tree of the test.
check "the bucket shows no names" nothing_shows snapshots-client
summary
