# A separate network with a gateway, an rpcbind and several machines that mount it; sourced after common.sh, not run.
#
#   . "$(dirname "$0")/lib/network.sh"
#
# Provides: need_network, start_network (network, rpcbind, gateway), start, signal_gateway and kill_gateway, in_network
# (runs a command in it), begin_boot, booted and boot (machines), crash_machine, send, answer, ask and expect (requests
# to machines), wait_for.
#
# $NFS_RUNNER names a program that boots a machine in that network: see main-job.sh; in addition it must support
# KM_NETNS (the network), KM_GUEST (the machine's address in it) and KM_LOCK (start the services for locking). A machine
# runs lock_client.py, which executes requests from files in $CONTROL.

need_network() {
    [ "$(id -u)" = 0 ] || die "must be root, to make a network"
    [ -n "${NFS_RUNNER:-}" ] || die "name a runner that boots a client with NFS_RUNNER"
    command -v rpcbind >/dev/null || die "needs rpcbind"
}

# wait_for SECONDS COMMAND ...
wait_for() {
    local limit=$1 tick
    shift
    for ((tick = 0; tick < limit * 10; tick++)); do
        "$@" && return 0
        sleep 0.1
    done
    return 1
}

# ---- the network, rpcbind and the gateway ------------------------------------------------------

# start_network NAME: starts a gateway with the settings of the FOREBAY_* variables, and unsets these. It listens on
# port 2049 of all addresses there; the machines use 10.99.0.1. Sets LOG, the gateway's messages, and CONTROL. Needs
# $WORK and $PROGRAM.
start_network() {
    local name
    NET=forebay-$1-$$ CONTROL=$WORK/control LOG=$WORK/gateway.log
    mkdir "$CONTROL"
    ip netns add "$NET"
    at_exit "ip netns del $NET"
    ip -n "$NET" link set lo up
    export WORK PROGRAM FOREBAY_LISTEN=0.0.0.0:2049 FOREBAY_RPCBIND=on
    # A separate /run: the sockets of this machine's rpcbind, if it has one, must not be used.
    cat >"$WORK/place" <<'PLACE'
#!/bin/bash
mount -t tmpfs run /run
rpcbind -w || exit 1
touch "$WORK/place.ready"
while :; do
    while [ ! -e "$WORK/start" ]; do sleep 0.05; done
    rm "$WORK/start"
    "$PROGRAM" serve --create >>"$WORK/gateway.log" 2>&1 &
    echo $! >"$WORK/gateway.pid.part" && mv "$WORK/gateway.pid.part" "$WORK/gateway.pid"
    # Without what bash says of a process that was killed.
    { wait $!; } 2>/dev/null
done
PLACE
    nsenter --net="/run/netns/$NET" unshare --mount --pid --fork --kill-child bash "$WORK/place" </dev/null &
    local place=$!
    at_exit "{ kill -9 $place; wait $place; } 2>/dev/null"
    for name in $(compgen -e | grep '^FOREBAY_'); do unset "$name"; done
    wait_for 10 test -e "$WORK/place.ready" || die "rpcbind does not start"
    start
}
in_network() { nsenter --net="/run/netns/$NET" "$@"; }
listens() { in_network bash -c 'exec 3<>/dev/tcp/127.0.0.1/2049' 2>/dev/null; }
start() {
    touch "$WORK/start"
    wait_for 60 listens || {
        tail -n 20 "$LOG"
        die "the gateway does not start"
    }
}
# signal_gateway SIGNAL. The gateway's process id is one of its own namespace.
signal_gateway() {
    local status
    for status in $(grep -lxs "NSpid:.*[[:space:]]$(cat "$WORK/gateway.pid")" /proc/[0-9]*/status); do
        grep -qx 'Name:[[:space:]]forebay' "$status" || continue
        # Another run's gateway may have the same id in its own namespace.
        [ "${status%/status}/ns/net" -ef "/run/netns/$NET" ] || continue
        kill "-$1" "$(basename "$(dirname "$status")")"
        return
    done
    die "the gateway is gone"
}
kill_gateway() { signal_gateway KILL; }

# ---- the machines ------------------------------------------------------------------------------

declare -A MACHINE ADDRESS ASKED
# begin_boot NAME ADDRESS: boots a machine without waiting for it (see booted). Memory is $MEMORY, mount options are
# $OPTIONS.
begin_boot() {
    rm -f "$CONTROL/$1".*
    ASKED[$1]=0 ADDRESS[$1]=$2
    KM_NETNS=$NET KM_GUEST=$2 KM_LOCK=1 KM_SHARE=$WORK KM_TIMEOUT=$LIMIT_S KM_MEM=${MEMORY:-256M} \
        KM_OPTS=${OPTIONS:-vers=3,tcp,hard,noacl} \
        setsid "$NFS_RUNNER" 2049 "exec python3 $TESTS/lib/lock_client.py /mnt/nfs $CONTROL $1" \
        </dev/null >"$WORK/$1.out" 2>&1 &
    MACHINE[$1]=$!
    at_exit "{ kill $!; wait $!; } 2>/dev/null"
}
# booted NAME: waits until the machine has mounted the export.
booted() {
    wait_for 90 test -e "$CONTROL/$1.ready" || {
        tail -n 20 "$WORK/$1.out" "$LOG"
        die "client $1 does not start"
    }
}
boot() {
    begin_boot "$@"
    booted "$1"
}
# crash_machine NAME: at once, without notifying any other. Its network interface is removed as well.
crash_machine() {
    local tap
    kill -9 -- "-${MACHINE[$1]}"
    { wait "${MACHINE[$1]}" || true; } 2>/dev/null
    ip -n "$NET" -o link show type tun | awk -F': ' '{ print $2 }' >"$WORK/taps"
    while read -r tap; do
        # No pipe into grep -q, which would end ip early and make the pipe fail.
        [[ $(ip -n "$NET" addr show dev "$tap") != *"peer ${ADDRESS[$1]}/"* ]] || ip -n "$NET" link del "$tap"
    done <"$WORK/taps"
}
# send NAME REQUEST ...: sends a request without waiting for the answer.
send() {
    local name=$1
    shift
    ASKED[$name]=$((ASKED[$name] + 1))
    say "$*" >"$CONTROL/$name.part"
    mv "$CONTROL/$name.part" "$CONTROL/$name.request.${ASKED[$name]}"
}
# answer NAME SECONDS [NUMBER]: waits for the answer to the last request, or to that of this number; sets ANSWER and
# TOOK (seconds).
answer() {
    local file=$CONTROL/$1.reply.${3:-${ASKED[$1]}}
    ANSWER="no answer" TOOK=$2
    wait_for "$2" test -e "$file" || return 0
    read -r line <"$file"
    TOOK=${line##* } ANSWER=${line% *}
}
ask() {
    send "$@"
    answer "$1" 60
}
# expect WHAT ANSWER: checks that the last answer was this.
expect() {
    if [ "$ANSWER" = "$2" ]; then pass "$1 ($ANSWER, $TOOK s)"; else fail "$1: $ANSWER and not $2"; fi
}
