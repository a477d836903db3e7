#!/usr/bin/env bash
# POSIX through NFSv3: the suite pjdfstest (398 cases of names, permissions, times, links and errors) through the Linux
# kernel's NFS client, as root, which the gateway does not squash, and as a user, while snapshots are made and deleted:
#
#   tests/posix.sh
#
# Every case must pass except those of posix.skipped, which gives the RFC's reason for each.
#
# Needs root, to mount. Where the kernel has no NFS, $NFS_RUNNER names a program that boots one that has:
#   $NFS_RUNNER PORT 'command'
# with the gateway's port on 127.0.0.1, and KM_SHARE (a folder for both), KM_OPTS and KM_TIMEOUT in the environment; it
# mounts the gateway at /mnt/nfs before it runs the command.
#
# Environment, with its defaults:
#   NFS_RUNNER=         see above
#   LIMIT_S=400         time limit of the suite
#   FB_BINARY=          the program; without it the release build of this checkout, built if need be
#   TEST_BIN=~/.cache/forebay-tests/bin   where pjdfstest is, or is built into
#   KEEP_OUTPUT=        a folder that gets the output of the suite
. "$(dirname "$0")/lib/common.sh"

LIMIT_S=${LIMIT_S:-400}
need_kernel_client
PROGRAM=$(forebay_binary)
SUITE=$(cargo_tool pjdfstest 0.2.2)
work_folder posix
# Users must reach the suite and its configuration; the gateway's files have a folder of their own.
chmod 755 "$WORK"
GATEWAY=$(mktemp -d /dev/shm/forebay-posix.XXXXXX)
at_exit "rm -rf '$GATEWAY'"
install -m 755 "$SUITE" "$WORK/pjdfstest"

# Users that every Debian has; no features except those that NFSv3 can have.
for name in posix remount; do
    cat >"$WORK/$name.toml" <<TOML
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.001
allow_remount = $([ "$name" = remount ] && echo true || echo false)
expected_failures = []
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
TOML
done

PORT=$(free_port)
start_gateway "$PROGRAM" "$PORT" "$GATEWAY/log" --store "file://$GATEWAY/bucket" --data-dir "$GATEWAY/data" \
    --squash none --log-segment 64MiB --log-limit 512MiB
at_exit 'end_process "$GATEWAY_PID" 20'

# Snapshots are made and deleted meanwhile: nobody may notice.
ask() { "$PROGRAM" "$@" --data-dir "$GATEWAY/data" >>"$GATEWAY/snapshots" 2>&1; }
(
    appears "$WORK/kept" && ask snapshot create kept && touch "$WORK/kept.done" || exit 1
    for ((number = 1; ; number++)); do
        sleep 0.5
        ask snapshot create "number-$number" || break
        # Only a snapshot that the bucket has can be deleted.
        [ "$number" -le 5 ] || { ask flush && ask snapshot delete "number-$((number - 5))"; } || break
        echo "$number" >"$GATEWAY/number"
    done
) &
SNAPSHOTS=$!
at_exit 'end_process "$SNAPSHOTS"'

began=$(seconds_now)
check "the suite runs" with_mount "$PORT" vers=3,tcp,hard,noacl "$LIMIT_S" \
    "$TESTS/lib/posix-client.sh '$WORK/pjdfstest' '$WORK'"
say "        $(seconds_since "$began") s"
[ -z "${KEEP_OUTPUT:-}" ] || cp "$WORK"/*.out "$KEEP_OUTPUT"/ || true
results() {
    python3 "$TESTS/lib/posix_results.py" "$TESTS/posix.skipped" "$WORK"/{remount,root,user}.out
}
if said=$(results); then
    pass "every case that NFSv3 can express: $said"
else
    fail "POSIX: $said"
fi
check "a snapshot has its file as it was before the suite" cmp "$WORK/kept" "$WORK/read-back"
if kill "$SNAPSHOTS"; then
    wait "$SNAPSHOTS" || true
    pass "$(cat "$GATEWAY/number") snapshots were made meanwhile"
else
    fail "snapshots: $(tail -n 3 "$GATEWAY/snapshots")"
fi
if stop_gateway; then pass "the gateway stops in order"; else fail "the gateway stops in order"; fi
summary
