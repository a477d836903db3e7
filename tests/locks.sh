#!/usr/bin/env bash
# Locks between two clients, shown with the Linux kernel's NFS client in two virtual machines:
#
#   NFS_RUNNER=... tests/locks.sh
#
# Both mount without nolock. fcntl and flock locks of one exclude the other; who waits gets the lock when it is
# given back, told by the gateway; a client that crashes and boots again loses its locks; locks survive a crash
# of the gateway, and nobody else gets them meanwhile.
#
# The gateway and an rpcbind run in a network of their own. $NFS_RUNNER names a program that boots a machine in
# it: see main-job.sh; beside what that needs, KM_NETNS (the network), KM_GUEST (the machine's address in
# it) and KM_LOCK (start what locking needs) must be understood.
#
# Environment, with what holds without it:
#   NFS_RUNNER=         see above; must be given
#   LIMIT_S=300         each machine may run so long
#   GRACE_S=20          grace period of the gateway
#   FB_BINARY=          the program; without it the release build of this checkout, built if need be
. "$(dirname "$0")/lib/common.sh"

[ "$(id -u)" = 0 ] || die "must be root, to make a network"
[ -n "${NFS_RUNNER:-}" ] || die "name a runner that boots a client with NFS_RUNNER"
command -v rpcbind >/dev/null || die "needs rpcbind"
LIMIT_S=${LIMIT_S:-300} GRACE_S=${GRACE_S:-20}
PROGRAM=$(forebay_binary)
work_folder locks
CONTROL=$WORK/control LOG=$WORK/gateway.log
mkdir "$CONTROL"

# ---- the network, rpcbind and the gateway ------------------------------------------------------

NET=forebay-locks-$$
ip netns add "$NET"
at_exit "ip netns del $NET"
ip -n "$NET" link set lo up
# A /run of its own: the sockets of this machine's rpcbind, if it has one, are not for this.
export NET WORK
cat >"$WORK/place" <<'PLACE'
#!/bin/bash
mount -t tmpfs run /run
rpcbind -w || exit 1
touch "$WORK/place.ready"
while :; do
    while [ ! -e "$WORK/start" ]; do sleep 0.05; done
    rm "$WORK/start"
    "$PROGRAM" serve >>"$WORK/gateway.log" 2>&1 &
    echo $! >"$WORK/gateway.pid.part" && mv "$WORK/gateway.pid.part" "$WORK/gateway.pid"
    wait $!
done
PLACE
export PROGRAM FOREBAY_LISTEN=0.0.0.0:2049 FOREBAY_CLIENTS=10.99.0.0/24 FOREBAY_SQUASH=none
export FOREBAY_DATA_DIR=$WORK/data FOREBAY_STORE=file://$WORK/bucket FOREBAY_LOCK_GRACE=${GRACE_S}s
export FOREBAY_RPCBIND=on FOREBAY_LOG_LEVEL=debug
nsenter --net="/run/netns/$NET" unshare --mount --pid --fork --kill-child bash "$WORK/place" </dev/null &
place=$!
at_exit "{ kill -9 $place; wait $place; } 2>/dev/null"
for name in $(compgen -e | grep '^FOREBAY_'); do unset "$name"; done

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
listens() { nsenter --net="/run/netns/$NET" bash -c 'exec 3<>/dev/tcp/127.0.0.1/2049' 2>/dev/null; }
start() {
    touch "$WORK/start"
    wait_for 60 listens || {
        tail -n 20 "$LOG"
        die "the gateway does not start"
    }
}
# The gateway's number is one of its own namespace.
kill_gateway() {
    local status
    for status in $(grep -lxs "NSpid:.*[[:space:]]$(cat "$WORK/gateway.pid")" /proc/[0-9]*/status); do
        grep -qx 'Name:[[:space:]]forebay' "$status" || continue
        kill -9 "$(basename "$(dirname "$status")")"
        return
    done
    die "the gateway is gone"
}
wait_for 10 test -e "$WORK/place.ready" || die "rpcbind does not start"
start

# ---- the clients -------------------------------------------------------------------------------

declare -A MACHINE ASKED
# boot NAME ADDRESS
boot() {
    rm -f "$CONTROL/$1".*
    ASKED[$1]=0
    KM_NETNS=$NET KM_GUEST=$2 KM_LOCK=1 KM_SHARE=$WORK KM_TIMEOUT=$LIMIT_S KM_MEM=256M \
        setsid "$NFS_RUNNER" 2049 "exec python3 $TESTS/lib/lock_client.py /mnt/nfs $CONTROL $1" \
        </dev/null >"$WORK/$1.out" 2>&1 &
    MACHINE[$1]=$!
    at_exit "{ kill $!; wait $!; } 2>/dev/null"
    wait_for 90 test -e "$CONTROL/$1.ready" || {
        tail -n 20 "$WORK/$1.out" "$LOG"
        die "client $1 does not start"
    }
}
# send NAME REQUEST ...: without waiting for the answer.
send() {
    local name=$1
    shift
    ASKED[$name]=$((ASKED[$name] + 1))
    say "$*" >"$CONTROL/$name.part"
    mv "$CONTROL/$name.part" "$CONTROL/$name.request.${ASKED[$name]}"
}
# answer NAME SECONDS: to the last request; sets ANSWER and TOOK (seconds).
answer() {
    local file=$CONTROL/$1.reply.${ASKED[$1]}
    ANSWER="no answer" TOOK=$2
    wait_for "$2" test -e "$file" || return 0
    read -r line <"$file"
    TOOK=${line##* } ANSWER=${line% *}
}
ask() {
    send "$@"
    answer "$1" 60
}
# expect WHAT ANSWER: that the last answer was this.
expect() {
    if [ "$ANSWER" = "$2" ]; then pass "$1 ($ANSWER, $TOOK s)"; else fail "$1: $ANSWER and not $2"; fi
}
told() { grep -c 'took the lock that it waited for' "$LOG" || true; }

boot a 10.99.0.2
boot b 10.99.0.3
ask a sh shell "grep ' /mnt/nfs ' /proc/mounts; touch /mnt/nfs/f /mnt/nfs/g"
case $ANSWER in
*nolock* | [1-9]*) fail "mounted without nolock: $ANSWER" ;;
*local_lock=none*) pass "mounted without nolock" ;;
*) fail "mounted: $ANSWER" ;;
esac

# ---- exclusion ---------------------------------------------------------------------------------

ask a one fcntl f ex try 0 100
expect "a locks bytes 0 to 99" held
ask b one fcntl f sh try 50 100
expect "b does not get some of them" refused
ask b one fcntl f ex try 100 100
expect "b gets those behind" held
ask a one fcntl f ex try 100 1
expect "which a does not" refused
ask a one unlock f 0 50
ask b one fcntl f ex try 0 50
expect "b gets what a has given back" held
ask b one fcntl f ex try 0 60
expect "and no more" refused
ask a one unlock f 0 0
ask b one unlock f 0 0
ask a one fcntl f sh try 0 0
expect "a reads" held
ask b one fcntl f sh try 0 0
expect "b reads beside it" held
ask b one fcntl f ex try 0 0
expect "b does not write beside it" refused
ask a one unlock f 0 0
ask b one unlock f 0 0

ask a one flock g ex try
expect "flock: a has the file" held
ask b one flock g ex try
expect "flock: b has not" refused
ask a one release g
ask b one flock g ex try
expect "flock: b has it afterwards" held
ask b one release g

# ---- waiting -----------------------------------------------------------------------------------

for kind in fcntl flock; do
    ask a one "$kind" f ex try 0 0
    expect "$kind: a holds" held
    before=$(told)
    send b one "$kind" f ex wait 0 0
    answer b 3
    expect "$kind: b waits" "no answer"
    if [ $kind = fcntl ]; then ask a one unlock f 0 0; else ask a one release f; fi
    answer b 40
    expect "$kind: b has it when a gives it back" held
    # By itself Linux asks again after 30 s.
    if [ "$(told)" -gt "$before" ]; then
        pass "$kind: the gateway told b"
    else
        fail "$kind: b found out by itself"
    fi
    ask a one "$kind" f ex try 0 0
    expect "$kind: a does not have it" refused
    if [ $kind = fcntl ]; then ask b one unlock f 0 0; else ask b one release f; fi
done

# ---- a crash of the gateway --------------------------------------------------------------------

ask a one fcntl f ex try 0 100
expect "a holds before the gateway is killed" held
kill_gateway
start
send b one fcntl f ex try 0 100
send b two fcntl f ex try 200 100
answer b 3
expect "in the grace period b gets nothing, not even what is free" "no answer"
answer b 60
expect "after it b gets what is free" held
ASKED[b]=$((ASKED[b] - 1))
answer b 60
expect "and not what a has held all the time" refused
ASKED[b]=$((ASKED[b] + 1))
ask a one unlock f 0 100
ask b one fcntl f ex try 0 100
expect "b gets it when a gives it back" held
ask b one unlock f 0 0
ask b two unlock f 0 0

# ---- a crash of a client -----------------------------------------------------------------------

ask a one fcntl f ex try 0 100
expect "a holds before it crashes" held
# What a machine with a disk would find there when it has booted again.
ask a sh shell "mkdir -p $WORK/nfs && cp -a /var/lib/nfs/sm /var/lib/nfs/state $WORK/nfs/"
kill -9 -- "-${MACHINE[a]}"
{ wait "${MACHINE[a]}" || true; } 2>/dev/null
ask b one fcntl f ex try 0 100
expect "what a crashed client held is not free by itself" refused
send b one fcntl f ex wait 0 100
ip -n "$NET" -o link show type tun | awk -F': ' '{ print $2 }' >"$WORK/taps"
for tap in $(<"$WORK/taps"); do
    ip -n "$NET" addr show dev "$tap" | grep -q 'peer 10.99.0.2' && ip -n "$NET" link del "$tap"
done
boot a 10.99.0.2
ask a sh shell "cp -a $WORK/nfs/sm $WORK/nfs/state /var/lib/nfs/ && chown -R statd /var/lib/nfs && sm-notify -f"
answer b 60
expect "b has it when a has booted again" held
ask a one fcntl f ex try 0 100
expect "a does not have it any more" refused

touch "$CONTROL/a.end" "$CONTROL/b.end"
[ "$FAILED" -eq 0 ] || tail -n 30 "$LOG"
summary
