# Helpers of the whole-program tests; sourced, not run.
#
#   . "$(dirname "$0")/lib/common.sh"
#
# Provides: check and summary (counted results), at_exit (clean-up that also runs on failure), work_folder,
# need_programs, free_port, wait_for_port, s3_server (MinIO or versitygw, built when missing), start_minio,
# start_versitygw, cargo_tool, forebay_binary, crash_binary, soak_binary, bench_binary, start_gateway and stop_gateway
# (a gateway on 127.0.0.1), appears (waits for a file of a script's other half). Every started process is a child of the
# script, and its clean-up ends it.

set -euo pipefail

TESTS=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PROJECT=$(dirname "$TESTS")

# Names of configuration begin with FOREBAY_: the caller's own settings must not change a test.
while read -r name; do unset "$name"; done < <(compgen -e | grep '^FOREBAY_' || true)

say() { printf '%s\n' "$*"; }
die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# ---- clean-up ----------------------------------------------------------------------------------

CLEANUP=()
at_exit() { CLEANUP+=("$1"); }
run_cleanup() {
    local status=$? index
    trap - EXIT INT TERM HUP
    set +e
    for ((index = ${#CLEANUP[@]} - 1; index >= 0; index--)); do eval "${CLEANUP[index]}"; done
    exit "$status"
}
trap run_cleanup EXIT
trap 'exit 130' INT TERM HUP

# work_folder NAME [PARENT]: makes a folder for this run, which is deleted at its end.
work_folder() {
    WORK=$(mktemp -d "${2:-${TMPDIR:-/tmp}}/forebay-$1.XXXXXX")
    at_exit "rm -rf '$WORK'"
}

# end_process PID [SECONDS]: sends SIGTERM, and SIGKILL after the time.
end_process() {
    local pid=$1 limit=${2:-10} tick
    kill "$pid" 2>/dev/null || return 0
    for ((tick = 0; tick < limit * 10; tick++)); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
}

# ---- results -----------------------------------------------------------------------------------

PASSED=0 FAILED=0
pass() {
    PASSED=$((PASSED + 1))
    say "ok      $*"
}
fail() {
    FAILED=$((FAILED + 1))
    say "FAILED  $*"
}
# check NAME COMMAND ...: counts whether the command succeeds; its output is shown if it fails.
check() {
    local name=$1 said
    shift
    if said=$("$@" 2>&1); then
        pass "$name"
    else
        fail "$name"
        # At most 20 lines; a reader that stops early would look like another failure.
        [ -z "$said" ] || head -n 20 <<<"$said" | sed 's/^/        /'
    fi
}
# Prints the last line of every test; fails if any check has failed.
summary() {
    say "$PASSED passed, $FAILED failed"
    [ "$FAILED" -eq 0 ] && [ "$PASSED" -gt 0 ]
}

# need_programs PROGRAM:PACKAGE ...: installs the packages of missing programs, on Debian and Ubuntu.
need_programs() {
    local pair missing=()
    PATH=$PATH:/usr/sbin:/sbin
    # Several packages of one program are separated by blanks.
    for pair in "$@"; do command -v "${pair%%:*}" >/dev/null || missing+=(${pair#*:}); done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || die "install what Debian has in these packages: ${missing[*]}"
    say "installing ${missing[*]}" >&2
    local apt=(apt-get -q -y -o DPkg::Lock::Timeout=600)
    { "${apt[@]}" update && DEBIAN_FRONTEND=noninteractive "${apt[@]}" install --no-install-recommends "${missing[@]}"; } \
        </dev/null >&2 || die "cannot install ${missing[*]}"
}

seconds_now() { date +%s.%N; }
# seconds_since START: with one digit.
seconds_since() { awk -v a="$1" -v b="$(seconds_now)" 'BEGIN { printf "%.1f", b - a }'; }

# ---- network -----------------------------------------------------------------------------------

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# wait_for_port PORT PID SECONDS: waits until a process listens on 127.0.0.1; fails at once if the process PID ends.
wait_for_port() {
    local port=$1 pid=$2 limit=$3 tick
    for ((tick = 0; tick < limit * 20; tick++)); do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && return 0
        kill -0 "$pid" 2>/dev/null || return 1
        sleep 0.05
    done
    return 1
}

# ---- S3 servers --------------------------------------------------------------------------------

# Folder of programs that only tests need.
TEST_BIN=${TEST_BIN:-$HOME/.cache/forebay-tests/bin}

# s3_server minio|versitygw: prints the path of the program, building it when it is missing.
s3_server() {
    local module
    case $1 in
    minio) module=github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c ;;
    versitygw) module=github.com/versity/versitygw/cmd/versitygw@v1.8.0 ;;
    *) die "no such S3 server: $1" ;;
    esac
    if [ ! -x "$TEST_BIN/$1" ]; then
        command -v go >/dev/null || die "building $1 needs Go (https://go.dev); or put $1 into $TEST_BIN"
        say "building $1 with $(go version | cut -d' ' -f3) (once)" >&2
        mkdir -p "$TEST_BIN"
        GOBIN=$TEST_BIN go install "$module" >&2 || die "cannot build $module"
    fi
    say "$TEST_BIN/$1"
}

# ---- test programs from crates.io ---------------------------------------------------------------

# cargo_tool NAME VERSION: prints the path of the program, building it when it is missing.
cargo_tool() {
    local name=$1 version=$2
    local program=$TEST_BIN/$name-$version
    if [ ! -x "$program" ]; then
        say "building $name $version (once)" >&2
        mkdir -p "$TEST_BIN"
        # With its own target folder, which is deleted afterwards.
        (
            unset CARGO_TARGET_DIR
            cargo install --quiet --locked --version "$version" --root "$TEST_BIN/.$name" "$name" >&2
        ) || die "cannot build $name $version"
        mv "$TEST_BIN/.$name/bin/$name" "$program"
        rm -rf "$TEST_BIN/.$name"
    fi
    say "$program"
}

# ---- MinIO and versitygw -----------------------------------------------------------------------

# reach_store PORT: exports the AWS_* variables for reaching and starting a store on 127.0.0.1.
reach_store() {
    export AWS_ACCESS_KEY_ID=forebay-test AWS_SECRET_ACCESS_KEY=forebay-test-secret
    export AWS_REGION=us-east-1 AWS_ENDPOINT_URL=http://127.0.0.1:$1
    export AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null
}

# start_versitygw PROGRAM FOLDER PORT [flags ...]: as start_minio; flags are those of its back end.
start_versitygw() {
    local program=$1 folder=$2 port=$3
    shift 3
    reach_store "$port"
    # versitygw takes a folder of its data for a bucket.
    mkdir -p "$folder/forebay"
    ROOT_ACCESS_KEY=$AWS_ACCESS_KEY_ID ROOT_SECRET_KEY=$AWS_SECRET_ACCESS_KEY \
        "$program" --port "127.0.0.1:$port" --quiet posix "$@" "$folder" >"$folder.log" 2>&1 &
    STORE_PID=$!
    wait_for_port "$port" "$STORE_PID" 30 || {
        cat "$folder.log" >&2
        die "versitygw does not start"
    }
}

# start_minio PROGRAM FOLDER PORT: a fresh MinIO on 127.0.0.1 with the bucket "forebay"; its process is
# $STORE_PID. Also exports the AWS_* variables to reach it.
start_minio() {
    reach_store "$3"
    # MinIO takes a folder of its data for a bucket.
    mkdir -p "$2/forebay"
    MINIO_ROOT_USER=$AWS_ACCESS_KEY_ID MINIO_ROOT_PASSWORD=$AWS_SECRET_ACCESS_KEY \
        MINIO_BROWSER=off MINIO_UPDATE=off \
        "$1" server "$2" --address "127.0.0.1:$3" --quiet >"$2.log" 2>&1 &
    STORE_PID=$!
    wait_for_port "$3" "$STORE_PID" 30 || {
        cat "$2.log" >&2
        die "MinIO does not start"
    }
}

# ---- the kernel's NFS client -------------------------------------------------------------------

kernel_has_nfs() {
    grep -qw nfs /proc/filesystems || modprobe -q nfs 2>/dev/null && grep -qw nfs /proc/filesystems
}
# need_kernel_client: ends the script if neither this kernel nor $NFS_RUNNER has an NFS client.
need_kernel_client() {
    [ "$(id -u)" = 0 ] || die "must be root, to mount"
    NFS_RUNNER=${NFS_RUNNER:-}
    if ! kernel_has_nfs && [ -z "$NFS_RUNNER" ]; then
        die "this kernel has no NFS client; name a runner that brings one with NFS_RUNNER"
    fi
}
# with_mount PORT OPTIONS SECONDS COMMAND: runs a shell command with the export $EXPORT (/ by default) of the gateway on
# 127.0.0.1:PORT mounted at the folder $MOUNT, by this kernel or in a virtual machine that sees this one's files and may
# write to $WORK. Returns the command's exit code; 124 or 125 if it did not end or did not begin. Several may run at
# once, each in a subshell: their clients share no cache.
with_mount() {
    local port=$1 options=$2 seconds=$3 command=$4 status=0 mount
    if kernel_has_nfs; then
        mount=$(mktemp -d "$WORK/mount.XXXXXX")
        # nosharecache: two mounts of one export would otherwise be one client with one cache.
        mount -t nfs -o "$options,nosharecache,port=$port,mountport=$port,mountproto=tcp,nolock" "127.0.0.1:${EXPORT:-/}" "$mount" || return 125
        MOUNT=$mount timeout "$seconds" bash -c "$command" </dev/null || status=$?
        timeout 60 umount "$mount" || timeout 20 umount -f -l "$mount" || true
        return "$status"
    fi
    KM_EXPORT=${EXPORT:-/} KM_OPTS=$options KM_SHARE=$WORK KM_TIMEOUT=$seconds "$NFS_RUNNER" "$port" \
        "MOUNT=/mnt/nfs; export MOUNT; $command" </dev/null
}

# appears FILE [SECONDS]: waits until the other half of a script has made the file; fails after the time.
appears() {
    local file=$1 limit=${2:-120} tick
    for ((tick = 0; tick < limit * 20; tick++)); do
        # Listed, not looked up: a virtual machine may remember that there was none.
        [ -z "$(find "$(dirname "$file")" -maxdepth 1 -name "$(basename "$file")")" ] || return 0
        sleep 0.05
    done
    say "there is no $file after $limit s"
    return 1
}

# ---- gateway -----------------------------------------------------------------------------------

# The program under test: FB_BINARY, or the release build of this checkout.
forebay_binary() {
    if [ -n "${FB_BINARY:-}" ]; then
        say "$FB_BINARY"
        return
    fi
    (cd "$PROJECT" && cargo build --release --quiet --package forebay >&2) ||
        die "cannot build the program"
    say "${CARGO_TARGET_DIR:-$PROJECT/target}/release/forebay"
}

# The harness that kills the program: CRASH_BINARY, or a debug build of this checkout.
crash_binary() { debug_binary crash; }
# The clients of the soak: SOAK_BINARY, or a debug build of this checkout.
soak_binary() { debug_binary soak; }

# debug_binary NAME: the program of the crate forebay-NAME, or the one in the variable NAME_BINARY, in capitals.
debug_binary() {
    local given=${1^^}_BINARY
    if [ -n "${!given:-}" ]; then
        say "${!given}"
        return
    fi
    (cd "$PROJECT" && cargo build --quiet --package "forebay-$1" >&2) || die "cannot build forebay-$1"
    say "${CARGO_TARGET_DIR:-$PROJECT/target}/debug/$1"
}

# bench_binary NAME: builds a benchmark of the program and prints its path, or the value of the variable NAME_BINARY, in
# capitals.
bench_binary() {
    local given=${1^^}_BINARY
    if [ -n "${!given:-}" ]; then
        say "${!given}"
        return
    fi
    (cd "$PROJECT" && cargo bench --quiet --no-run --bench "$1" --message-format=json) |
        NAME=$1 python3 -c '
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("target", {}).get("name") == os.environ["NAME"] and message.get("executable"):
        print(message["executable"])' ||
        die "cannot build the benchmark $1"
}

# start_gateway PROGRAM PORT LOG [flags ...]: serves on 127.0.0.1, or on $LISTEN if that is set; its process is
# $GATEWAY_PID.
start_gateway() {
    local program=$1 port=$2 log=$3
    shift 3
    # The clients in tests are not root everywhere.
    FOREBAY_SOURCE_PORT=insecure FOREBAY_ADMIN_LISTEN=${FOREBAY_ADMIN_LISTEN:-none} "$program" serve --create --listen "${LISTEN:-127.0.0.1}:$port" "$@" >>"$log" 2>&1 </dev/null &
    GATEWAY_PID=$!
    wait_for_port "$port" "$GATEWAY_PID" 60 || {
        tail -n 20 "$log" >&2
        die "the gateway does not start"
    }
}

# stop_gateway [SECONDS]: sends SIGTERM; returns the exit code of the gateway.
stop_gateway() {
    local limit=${1:-60} tick
    kill -TERM "$GATEWAY_PID"
    for ((tick = 0; tick < limit * 10; tick++)); do
        kill -0 "$GATEWAY_PID" 2>/dev/null || break
        sleep 0.1
    done
    kill -9 "$GATEWAY_PID" 2>/dev/null || true
    wait "$GATEWAY_PID"
}
