#!/usr/bin/env bash
# The write verifier is correct, tested with the Linux kernel's NFS client:
#
#   tests/verifier.sh
#
# A program writes without fsync (WRITEs are answered UNSTABLE, nothing is committed) and calls fsync after the gateway
# has crashed. After SIGKILL nothing is lost: the verifier is the same, the client sends nothing again, the file is
# correct. After a power cut (SIGKILL, everything in the log behind the durable LSN zeroed, another boot id) the
# verifier is new: the client sends every WRITE again, and the file is correct. WRITEs and COMMITs are counted by the
# client's kernel (/proc/self/mountstats).
#
# Needs root, and Linux 5.12 or newer for the mount option write=eager, under which WRITEs go out at once and
# are not committed before fsync. Where the kernel has no NFS, $NFS_RUNNER names a program that boots one that has: see
# main-job.sh.
#
# Environment, with its defaults:
#   NFS_RUNNER=         see above
#   BYTES=16000000      size of each file
#   LIMIT_S=300         time limit of the whole
#   FB_BINARY=          the program; without it the release build of this checkout, built if need be
#   CRASH_BINARY=       the harness `crash` (crates/crash), which cuts the power; without it a debug build
. "$(dirname "$0")/lib/common.sh"

[ "$(id -u)" = 0 ] || die "must be root, to mount"
BYTES=${BYTES:-16000000} LIMIT_S=${LIMIT_S:-300} NFS_RUNNER=${NFS_RUNNER:-}
kernel_has_nfs() {
    grep -qw nfs /proc/filesystems || modprobe -q nfs 2>/dev/null && grep -qw nfs /proc/filesystems
}
if ! kernel_has_nfs && [ -z "$NFS_RUNNER" ]; then
    die "this kernel has no NFS client; name a runner that brings one with NFS_RUNNER"
fi

PROGRAM=$(forebay_binary)
CRASH=$(crash_binary)
work_folder verifier
CONTROL=$WORK/control LOCAL=$WORK/local FOLDER=$WORK/store STORE=file
mkdir "$CONTROL" "$LOCAL" "$FOLDER"
export PROGRAM CRASH CONTROL LOCAL FOLDER STORE
# Nothing reaches the bucket by itself: data lost from the log are lost.
export GATEWAY_SET_CHECKPOINT_INTERVAL=1h GATEWAY_SET_LOG_SEGMENT=64MiB

CLIENT=$TESTS/lib/verifier_client.py
if kernel_has_nfs; then
    export LISTEN=127.0.0.1 PORT
    PORT=$(free_port)
    say "client: the kernel of this machine, $(uname -r)"
    unshare --pid --fork --kill-child "$TESTS/lib/supervisor.sh" </dev/null &
    supervisor=$!
    at_exit "{ kill -9 $supervisor; wait $supervisor; } 2>/dev/null"
    wait_for_port "$PORT" "$supervisor" 90 || die "the gateway does not start"
    mkdir "$WORK/mount"
    mount -t nfs -o "vers=3,tcp,hard,write=eager,port=$PORT,mountport=$PORT,nolock" 127.0.0.1:/ "$WORK/mount"
    at_exit "timeout 20 umount -f -l '$WORK/mount'"
    interval=$(cat /proc/sys/vm/dirty_writeback_centisecs)
    at_exit "echo $interval >/proc/sys/vm/dirty_writeback_centisecs"
    timeout "$LIMIT_S" python3 "$CLIENT" "$WORK/mount" "$CONTROL" "$BYTES" </dev/null &
else
    # The runner has its own network, in which no port is taken; its client is root, and has no loopback address.
    export LISTEN=0.0.0.0 PORT=2049
    export GATEWAY_SET_CLIENTS=10.99.0.0/24,127.0.0.0/8 GATEWAY_SET_SQUASH=none
    say "client: a virtual machine, by $NFS_RUNNER"
    KM_OPTS=vers=3,tcp,hard,noacl,write=eager KM_SERVER=$TESTS/lib/supervisor.sh KM_SHARE=$WORK KM_TIMEOUT=$LIMIT_S "$NFS_RUNNER" "$PORT" \
        "/usr/bin/python3 $CLIENT /mnt/nfs $CONTROL $BYTES" </dev/null &
fi
client=$!
at_exit "end_process $client 15"
status=0
wait "$client" || status=$?
if [ "$status" -ne 0 ]; then
    say "the last of what the gateway said:"
    tail -n 40 "$FOLDER/gateway.log" || true
fi
[ ! -e "$CONTROL/died" ] || { cat "$CONTROL/died"; status=1; }
exit "$status"
