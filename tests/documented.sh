#!/usr/bin/env bash
# Runs the commands of docs/snapshots.md as they are written there, in their order, with the Linux kernel's NFS client, a
# gateway, and versitygw as its bucket; fails if the text has a command that was not run:
#
#   tests/documented.sh
#
# Needs root, and $NFS_RUNNER: everything runs in the machine that it boots, where commands may mount at the paths of
# the text.
#
# Environment, with its defaults:
#   NFS_RUNNER=         see tests/main-job.sh
#   LIMIT_S=400         time limit
#   FB_BINARY=          the program; without it the release build of this checkout, built if need be
#   TEST_BIN=           where versitygw is, or is built
. "$(dirname "$0")/lib/common.sh"

[ "$(id -u)" = 0 ] || die "must be root, to mount"
[ -n "${NFS_RUNNER:-}" ] || die "NFS_RUNNER is not set"
PROGRAM=$(forebay_binary)
S3_SERVER=$(s3_server versitygw)
work_folder documented
# The runner asks for a server; nobody connects to this one.
PORT=$(free_port)
python3 -c 'import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(3600)' "$PORT" &
at_exit "end_process $!"
wait_for_port "$PORT" $! 20 || die "no listener"

KM_NOMOUNT=1 KM_SHARE=$WORK KM_TIMEOUT=${LIMIT_S:-400} "$NFS_RUNNER" "$PORT" \
    "'$TESTS/lib/documented-guest.sh' '$PROGRAM' '$S3_SERVER'" </dev/null
