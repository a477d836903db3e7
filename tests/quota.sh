#!/usr/bin/env bash
# Quotas as seen through the Linux kernel's NFS client: the output of `df`, the byte at which a full directory and a
# full volume refuse and with which error, and that removing files makes room again:
#
#   tests/quota.sh
#
# Needs root, to mount. Where the kernel has no NFS, $NFS_RUNNER names a program that boots one that has:
#   $NFS_RUNNER PORT 'command'
# with the gateway's port on 127.0.0.1, and KM_EXPORT (what to mount), KM_SHARE (a folder for both), KM_OPTS and
# KM_TIMEOUT in the environment; it mounts the gateway at /mnt/nfs before it runs the command.
#
# Environment, with its defaults:
#   NFS_RUNNER=         see above
#   LIMIT_S=120         time limit of each part
#   FB_BINARY=          the program; without it the release build of this checkout, built if need be
. "$(dirname "$0")/lib/common.sh"

LIMIT_S=${LIMIT_S:-120}
need_kernel_client
PROGRAM=$(forebay_binary)
work_folder quota
GATEWAY=$(mktemp -d /dev/shm/forebay-quota.XXXXXX)
at_exit "rm -rf '$GATEWAY'"

# client EXPORT PART: the client's half of a part, with that directory mounted.
client() {
    local said status=0
    said=$(EXPORT=$1 with_mount "$PORT" vers=3,tcp,hard,noacl "$LIMIT_S" "'$TESTS/lib/quota-client.sh' $2" 2>&1) ||
        status=$?
    say "$said"
    [ "$status" -eq 0 ]
}
# part EXPORT PART WHAT: counts whether all checks of the client succeed.
part() {
    if client "$1" "$2"; then pass "$3"; else fail "$3"; fi
}
quota() { "$PROGRAM" quota "$@" --data-dir "$GATEWAY/data"; }

PORT=$(free_port)
start_gateway "$PROGRAM" "$PORT" "$GATEWAY/log" --store "file://$GATEWAY/bucket" --data-dir "$GATEWAY/data" \
    --squash none --volume-limit 64MiB --log-segment 64MiB --log-limit 512MiB
at_exit 'end_process "$GATEWAY_PID" 20'

part / prepare "directories are made"
check "the quota is set" quota set /home --bytes 8MiB --files 10
part /home tree "a mounted directory with a quota"
part / volume "the volume, with the directory in it"
check "what the gateway counts in the end is what is there" \
    grep -q '"used_bytes": 0,' <(quota show /home --json)
if stop_gateway; then pass "the gateway stops in order"; else fail "the gateway stops in order"; fi
summary
