#!/usr/bin/env bash
# The main job, end to end, through the Linux kernel's NFS client:
#
#   tests/main-job.sh file|minio [sealed]
#
# Unpacks a source tree, compares every checksum, commits it to git, renames, links and deletes parts of it, writes a
# large file with fsync and reads it back; the gateway is killed (SIGKILL) and restarted in the middle of two of these.
# Then it unmounts, deletes the gateway's local folder, attaches a new one to the bucket and compares everything again.
# With `sealed` the volume is sealed, and its log as well, and in the end the bucket must not show any of the written
# data.
#
# Needs root. Where the kernel has no NFS, $NFS_RUNNER names a program that boots one that has:
#   $NFS_RUNNER PORT 'command'
# with KM_SERVER (starts the server in the runner's network), KM_NOMOUNT, KM_SHARE and KM_TIMEOUT in the
# environment, and KM_SRV and KM_MOPTS in that of the command.
#
# Environment, with its defaults:
#   NFS_RUNNER=         see above
#   SOURCE_FILES=5000   least number of files to unpack (crates of the local cargo registry)
#   BIG_MIB=1024        size of the large file; below 256 it may be written before the kill comes
#   LOG_FOLDER=/dev/shm parent of the gateway's local folder; $TMPDIR if it has too little room
#   LIMIT_S=1200        time limit of the whole
#   FB_BINARY=          the program; without it the release build of this checkout, built if need be
#   TEST_BIN=~/.cache/forebay-tests/bin   where MinIO is, or is built into
. "$(dirname "$0")/lib/common.sh"

STORE=${1:-}
SEALED=${2:-}
case $STORE,$SEALED in file, | minio, | file,sealed | minio,sealed) ;; *) die "usage: $0 file|minio [sealed]" ;; esac
[ "$(id -u)" = 0 ] || die "must be root, to mount"
SOURCE_FILES=${SOURCE_FILES:-5000} BIG_MIB=${BIG_MIB:-1024} LIMIT_S=${LIMIT_S:-1200}
NFS_RUNNER=${NFS_RUNNER:-}

kernel_has_nfs() {
    grep -qw nfs /proc/filesystems || modprobe -q nfs 2>/dev/null && grep -qw nfs /proc/filesystems
}
if ! kernel_has_nfs && [ -z "$NFS_RUNNER" ]; then
    die "this kernel has no NFS client; name a runner that brings one with NFS_RUNNER"
fi

began=$(seconds_now)
PROGRAM=$(forebay_binary)
MINIO=
[ "$STORE" = file ] || MINIO=$(s3_server minio)
work_folder main-job
JOB=$WORK/job CONTROL=$WORK/job/control
mkdir -p "$CONTROL" "$WORK/store"

# The log may take 4 GiB.
LOG_FOLDER=${LOG_FOLDER:-/dev/shm}
if [ "$(df --output=avail -k "$LOG_FOLDER" | tail -n 1)" -lt $((6 << 20)) ]; then
    LOG_FOLDER=$WORK
fi
LOCAL=$(mktemp -d "$LOG_FOLDER/forebay-main-job.XXXXXX")
at_exit "rm -rf '$LOCAL'"

# ---- what is to be unpacked --------------------------------------------------------------------

shopt -s nullglob
crates=("${CARGO_HOME:-$HOME/.cargo}"/registry/cache/*/*.crate)
shopt -u nullglob
mkdir "$WORK/source"
files=0 unpacked=0
for crate in "${crates[@]}"; do
    tar -xzf "$crate" -C "$WORK/source"
    unpacked=$((unpacked + 1))
    # Counting takes longer than unpacking.
    [ $((unpacked % 5)) -eq 0 ] || continue
    files=$(find "$WORK/source" -type f | wc -l)
    [ "$files" -lt "$SOURCE_FILES" ] || break
done
files=$(find "$WORK/source" -type f | wc -l)
[ "$files" -ge "$SOURCE_FILES" ] ||
    die "the cargo registry has only $files files in $unpacked crates; $SOURCE_FILES are needed (cargo fetch)"
(cd "$WORK/source" && find . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum) >"$JOB/manifest"
tar -cf "$JOB/source.tar" -C "$WORK/source" .
tar -tf "$JOB/source.tar" | grep -v '/$' | sed 's,^\./,,' >"$JOB/unpack-order"
bytes=$(stat -c %s "$JOB/source.tar")
rm -rf "$WORK/source"
python3 "$TESTS/lib/tree_changes.py" plan "$JOB/manifest" "$JOB/plan" "$JOB/after"
head -c "${BIG_MIB}M" /dev/urandom >"$JOB/big"
sha256sum <"$JOB/big" >"$JOB/big.sum"
say "$STORE: $files files of $unpacked crates, $((bytes >> 20)) MiB; one file of $BIG_MIB MiB;" \
    "prepared in $(seconds_since "$began") s"

# ---- gateway and client ------------------------------------------------------------------------

export PROGRAM MINIO STORE CONTROL LOCAL JOB FOLDER=$WORK/store
if [ -n "$SEALED" ]; then
    (umask 077 && head -c 24 /dev/urandom | base64 >"$WORK/passphrase")
    export GATEWAY_SET_ENCRYPTION=aes-256-gcm GATEWAY_SET_PASSPHRASE_FILE=$WORK/passphrase GATEWAY_SET_SEAL_LOG=on
fi
# Half of the large file has to leave memory, and be read back from the bucket.
export GATEWAY_SET_MEMORY_LIMIT=512MiB

if kernel_has_nfs; then
    export LISTEN=127.0.0.1 PORT STORE_PORT
    PORT=$(free_port) STORE_PORT=$(free_port)
    say "client: the kernel of this machine, $(uname -r)"
    unshare --pid --fork --kill-child "$TESTS/lib/supervisor.sh" </dev/null &
    supervisor=$!
    at_exit "{ kill -9 $supervisor; wait $supervisor; } 2>/dev/null"
    wait_for_port "$PORT" "$supervisor" 90 || die "the gateway does not start"
    export MOUNT_SOURCE=127.0.0.1:/ MOUNT_POINT=$WORK/mount
    export MOUNT_OPTIONS=vers=3,tcp,hard,port=$PORT,mountport=$PORT,nolock
    mkdir "$MOUNT_POINT"
    # Before the gateway ends: a hard mount would wait for it for ever.
    at_exit "mountpoint -q '$MOUNT_POINT' && timeout 20 umount -f -l '$MOUNT_POINT'"
    timeout "$LIMIT_S" "$TESTS/lib/main-job-client.sh" </dev/null &
else
    # The runner has its own network, in which no port is taken.
    export LISTEN=0.0.0.0 PORT=2049 STORE_PORT=9000
    # Its client is root, and has no loopback address.
    export GATEWAY_SET_CLIENTS=10.99.0.0/24,127.0.0.0/8 GATEWAY_SET_SQUASH=none
    say "client: a virtual machine, by $NFS_RUNNER"
    KM_SERVER=$TESTS/lib/supervisor.sh KM_SHARE=$JOB KM_NOMOUNT=1 KM_TIMEOUT=$LIMIT_S "$NFS_RUNNER" "$PORT" \
        "MOUNT_SOURCE=\$KM_SRV MOUNT_OPTIONS=\$KM_MOPTS MOUNT_POINT=/mnt/nfs CONTROL=$CONTROL JOB=$JOB \
         $TESTS/lib/main-job-client.sh" </dev/null &
fi
client=$!
at_exit "end_process $client 15"

# If the gateway ends by itself, the client would wait for ever.
while kill -0 "$client" 2>/dev/null; do
    if [ -e "$CONTROL/died" ]; then
        fail "$(cat "$CONTROL/died")"
        end_process "$client" 15
        break
    fi
    sleep 0.5
done
status=0
wait "$client" || status=$?
if [ "$status" -ne 0 ]; then
    say "the last of what the gateway said:"
    tail -n 40 "$FOLDER/gateway.log" || true
fi
# Texts of every source tree, which are in no object's name; SlateDB stores names and small files as they are.
if [ -n "$SEALED" ]; then
    objects=$FOLDER/$([ "$STORE" = file ] && echo bucket || echo minio)
    seen=$(grep -rlaF -e Cargo.toml -e 'fn main()' "$objects" | head -n 3) || true
    if [ -n "$seen" ]; then
        fail "names or contents are in the sealed bucket: $seen"
    elif [ -z "$(find "$objects" -name '*forebay.keys*' -print -quit)" ]; then
        fail "the volume is not sealed"
    else
        pass "nothing of what was written is found in the bucket"
    fi
fi
[ ! -s "$CONTROL/peak_kib" ] ||
    say "gateway: at most $(($(cat "$CONTROL/peak_kib") >> 10)) MiB resident (VmHWM)"
say "$STORE: $(seconds_since "$began") s with preparation"
if [ "$status" -eq 0 ] && [ "$FAILED" -eq 0 ]; then pass "the main job on $STORE"; else fail "the main job on $STORE"; fi
summary
