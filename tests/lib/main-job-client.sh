#!/usr/bin/env bash
# The client's half of main-job.sh: everything that goes through the mount. Runs as root on this machine
# or in a virtual machine that sees its files.
#
# Environment: MOUNT_SOURCE, MOUNT_OPTIONS, MOUNT_POINT (a folder), CONTROL (see supervisor.sh), and JOB, the folder
# that main-job.sh has prepared: source.tar, manifest (sha256sum lines of its files), plan and after (see
# tree_changes.py), big and big.sum.
set -uo pipefail
. "$(dirname "$0")/common.sh"
set +e

M=$MOUNT_POINT TREE=$MOUNT_POINT/source
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 HOME=/root
export GIT_AUTHOR_NAME=Test GIT_AUTHOR_EMAIL=test@localhost
export GIT_COMMITTER_NAME=Test GIT_COMMITTER_EMAIL=test@localhost

# send WORD: sends a request to the supervisor. Not in a subshell, because it counts the requests.
requests=0
send() {
    requests=$((requests + 1))
    # Its content must exist before its name.
    printf '%s\n' "$1" >"$CONTROL/new-request"
    mv "$CONTROL/new-request" "$CONTROL/request.$requests"
}
# answered NAME: checks the answer to the last request.
answered() {
    local tick answer
    for ((tick = 0; tick < 3000; tick++)); do
        [ -e "$CONTROL/reply.$requests" ] && break
        sleep 0.1
    done
    answer=$(cat "$CONTROL/reply.$requests" 2>/dev/null) || answer="no answer"
    case $answer in
    "ok "*) pass "$1: ${answer#ok }" ;;
    *) fail "$1: $answer" ;;
    esac
}
# timed NAME COMMAND ...: a check that prints its duration.
timed() {
    local name=$1 began
    shift
    began=$(seconds_now)
    check "$name" "$@"
    say "        $(seconds_since "$began") s"
}

attach() { timeout 120 mount -t nfs -o "$MOUNT_OPTIONS" "$MOUNT_SOURCE" "$M"; }
detach() { timeout 120 umount "$M"; }
# Drops the page cache, so that this machine's memory answers nothing that was read or written before.
forget() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
}
same_checksums() { (cd "$TREE" && sha256sum --quiet --strict --check "$1"); }
# Exactly the files of the manifest, and no other.
same_names() {
    (cd "$TREE" && find . -path ./.git -prune -o -type f -printf '%P\n' | LC_ALL=C sort) >"$JOB/names"
    cut -c67- "$1" | LC_ALL=C sort | cmp - "$JOB/names"
}
big_is_whole() { [ "$(sha256sum <"$M/big")" = "$(cat "$JOB/big.sum")" ]; }
# Every name with inode, mode, owner, links, size, time and target. Access times may differ.
listing() { (cd "$M" && find . -printf '%p %i %m %U:%G %n %y %s %T@ %l\n' | LC_ALL=C sort) >"$1"; }

job_began=$(seconds_now)
check "mount" attach

# ---- unpack, with a crash in the middle --------------------------------------------------------

mkdir "$TREE"
began=$(seconds_now)
tar -xf "$JOB/source.tar" -C "$TREE" &
worker=$!
middle=$(sed -n "$(($(wc -l <"$JOB/manifest") / 2))p" "$JOB/unpack-order")
until [ -e "$TREE/$middle" ] || ! kill -0 "$worker" 2>/dev/null; do sleep 0.05; done
send kill
check "the gateway is killed while files are being unpacked" kill -0 "$worker"
answered "SIGKILL and restart"
wait "$worker"
check "unpacking goes on after it" test $? -eq 0
say "        $(seconds_since "$began") s"

forget
timed "every checksum, read from the server" same_checksums "$JOB/manifest"
check "every name" same_names "$JOB/manifest"

# ---- git ---------------------------------------------------------------------------------------

commit() {
    git -c init.defaultBranch=main init -q . &&
        git add --all --force . &&
        git -c gc.auto=0 commit -qm 'The tree as it was unpacked'
}
# git wants a folder to work in, and the mount must not be busy at the end.
in_tree() { (cd "$TREE" && "$@"); }
timed "git init, add and commit" in_tree commit
check "git has every file" test "$(in_tree git ls-files | wc -l)" -eq "$(wc -l <"$JOB/manifest")"
forget
timed "git fsck" in_tree git fsck --full

# ---- rename, link, delete ----------------------------------------------------------------------

timed "rename, hard-link and delete parts of the tree" \
    /usr/bin/python3 "$TESTS/lib/tree_changes.py" apply "$JOB/plan" "$TREE"
forget
timed "every checksum after it" same_checksums "$JOB/after"
check "every name after it" same_names "$JOB/after"
check "linked names are one file" /usr/bin/python3 "$TESTS/lib/tree_changes.py" links "$JOB/plan" "$TREE"

# ---- one large file, with a crash in the middle ------------------------------------------------

size=$(stat -c %s "$JOB/big")
began=$(seconds_now)
dd if="$JOB/big" of="$M/big" bs=1M conv=fsync 2>"$JOB/dd" &
worker=$!
until [ "$(stat -c %s "$M/big" 2>/dev/null || echo 0)" -ge $((size / 4)) ] || ! kill -0 "$worker" 2>/dev/null; do
    sleep 0.05
done
send kill
check "the gateway is killed while a large file is being written" kill -0 "$worker"
answered "SIGKILL and restart"
wait "$worker"
check "dd conv=fsync goes on after it" test $? -eq 0
say "        $(seconds_since "$began") s for $((size >> 20)) MiB"

forget
check "unmount" detach
check "mount again" attach
timed "the large file, read from the server" big_is_whole

# ---- the bucket alone --------------------------------------------------------------------------

listing "$JOB/listing-before"
# Without locks: git status would write its index again.
status() { in_tree git --no-optional-locks status --porcelain --untracked-files=all; }
status >"$JOB/status-before"
check "unmount" detach
began=$(seconds_now)
send flush
answered "flush"
say "        $(seconds_since "$began") s"
send stop
answered "SIGTERM"
send fresh
answered "the local folder is thrown away"
check "mount what the bucket holds" attach
timed "every checksum from the bucket" same_checksums "$JOB/after"
check "every name from the bucket" same_names "$JOB/after"
timed "the large file from the bucket" big_is_whole
listing "$JOB/listing-after"
check "every inode, mode, owner, link count, size and time from the bucket" \
    diff "$JOB/listing-before" "$JOB/listing-after"
status >"$JOB/status-after"
check "git status from the bucket" cmp "$JOB/status-before" "$JOB/status-after"
timed "git fsck from the bucket" in_tree git fsck --full
check "writing goes on" sh -c "echo more >'$M/more' && sync '$M/more' && rm '$M/more'"
check "unmount" detach

say "        $(seconds_since "$job_began") s in all"
summary
