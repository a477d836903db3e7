#!/usr/bin/env bash
# Runs a gateway (and MinIO, if that is its store) and executes requests of a test that runs elsewhere, such as in a
# virtual machine that shares only a folder with this one.
#
# A request is a file $CONTROL/request.N, N = 1, 2, ..., with one word; the answer is $CONTROL/reply.N with "ok ..." or
# "failed ...":
#
#   kill    SIGKILL, and at once a new start on the same folder
#   flush   `forebay flush`, then whether `forebay status` reports that nothing is unpublished
#   stop    SIGTERM; ok if the gateway exits with 0
#   fresh   deletes the local folder and starts on a new one (after stop)
#   cut     a power cut: SIGKILL, the loss of everything in the log that was not durable, another boot id, and a new
#           start
#
# If the gateway ends by itself, $CONTROL/died has the reason. $CONTROL/peak_kib is the most memory that one has had.
#
# Environment: CONTROL; PROGRAM (forebay), LISTEN (address) and PORT; FOLDER, for the bucket and the messages of the
# processes; LOCAL, the parent of the gateway's local folders; STORE (file or minio), for minio also MINIO (program) and
# STORE_PORT; for cut also CRASH (program); and GATEWAY_SET_X=value for every other setting FOREBAY_X of the gateway.
#
# The caller must start this in a separate namespace of process ids, so that no process outlives it.
. "$(dirname "$0")/common.sh"
at_exit '[ -e "$CONTROL/died" ] || say "the supervisor ended" >"$CONTROL/died"'

for name in $(compgen -e | grep '^GATEWAY_SET_' || true); do
    export "FOREBAY_${name#GATEWAY_SET_}=${!name}"
done
export FOREBAY_LISTEN=$LISTEN:$PORT

if [ "$STORE" = minio ]; then
    start_minio "$MINIO" "$FOLDER/minio" "$STORE_PORT"
    export FOREBAY_STORE=s3://forebay/main/job
else
    export FOREBAY_STORE=file://$FOLDER/bucket
fi

folder=0
use_new_folder() {
    folder=$((folder + 1))
    export FOREBAY_DATA_DIR=$LOCAL/data-$folder
}

start() {
    FOREBAY_ADMIN_LISTEN=none "$PROGRAM" serve --create >>"$FOLDER/gateway.log" 2>&1 &
    gateway=$!
    wait_for_port "$PORT" "$gateway" 60
}

peak_kib=0
note_peak() {
    local kib
    kib=$(awk '/^VmHWM/ { print $2 }' "/proc/$(outer_pid)/status" 2>/dev/null) || return 0
    [ "${kib:-0}" -le "$peak_kib" ] || peak_kib=$kib
    say "$peak_kib" >"$CONTROL/peak_kib"
}
# In a namespace of process ids that has no /proc of its own, ours name other processes there.
outer_pid() {
    local status
    for status in $(grep -lxs "NSpid:.*[[:space:]]$gateway" /proc/[0-9]*/status); do
        grep -qx 'Name:[[:space:]]forebay' "$status" && basename "$(dirname "$status")" && return
    done
    say "$gateway"
}

# Runs a command, and makes its outcome and output one line of an answer.
answer() {
    local said
    if said=$("$@" 2>&1); then say "ok $said"; else say "failed $said"; fi | tr '\n' ' '
}

flush() {
    "$PROGRAM" flush --timeout 5m
    "$PROGRAM" status --json | python3 -c '
import json, sys
status = json.load(sys.stdin)
if status["unpublished_bytes"] != 0 or status["dirty_bytes"] != 0:
    sys.exit("not in the bucket: %s bytes of log, %s dirty" % (status["unpublished_bytes"], status["dirty_bytes"]))'
}

# Each sets $outcome; none may run in a subshell, which could neither wait for the gateway nor set $gateway.
do_kill() {
    local began
    note_peak
    began=$(seconds_now)
    kill -9 "$gateway"
    { wait "$gateway" || true; } 2>/dev/null
    if start; then outcome="ok serves again after $(seconds_since "$began") s"; else outcome="failed to start again"; fi
}
do_cut() {
    local durable said
    durable=$("$PROGRAM" status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["durable_lsn"])')
    kill -9 "$gateway"
    { wait "$gateway" || true; } 2>/dev/null
    said=$("$CRASH" cut-power --data-dir "$FOREBAY_DATA_DIR" --durable "$durable" 2>&1) || {
        outcome="failed $said"
        return
    }
    if start; then outcome="ok $said"; else outcome="failed to start again"; fi
}
do_flush() { outcome=$(answer flush); }
do_stop() {
    local tick status=0
    note_peak
    kill -TERM "$gateway"
    for ((tick = 0; tick < 1200; tick++)); do
        kill -0 "$gateway" 2>/dev/null || break
        sleep 0.1
    done
    kill -9 "$gateway" 2>/dev/null || true
    wait "$gateway" || status=$?
    gateway=
    if [ "$status" -eq 0 ]; then outcome="ok exit code 0"; else outcome="failed exit code $status"; fi
}
do_fresh() {
    rm -rf "$FOREBAY_DATA_DIR"
    use_new_folder
    if start; then outcome="ok attached with $FOREBAY_DATA_DIR"; else outcome="failed to start"; fi
}

use_new_folder
start || {
    say "the gateway does not start" >"$CONTROL/died"
    exit 1
}

number=1
while :; do
    if [ -e "$CONTROL/request.$number" ]; then
        request=$(cat "$CONTROL/request.$number")
        case $request in
        kill | flush | stop | fresh | cut) "do_$request" ;;
        *) outcome="failed: unknown request $request" ;;
        esac
        say "$outcome" >"$CONTROL/reply.$number.part"
        mv "$CONTROL/reply.$number.part" "$CONTROL/reply.$number"
        number=$((number + 1))
    elif [ -n "$gateway" ] && ! kill -0 "$gateway" 2>/dev/null; then
        wait "$gateway" && status=0 || status=$?
        say "the gateway ended unasked with exit code $status" >"$CONTROL/died"
        exit 1
    else
        sleep 0.05
    fi
done
