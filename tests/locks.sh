#!/usr/bin/env bash
# Locks between two clients, tested with the Linux kernel's NFS client in two virtual machines:
#
#   NFS_RUNNER=... tests/locks.sh
#
# Both mount without nolock. fcntl and flock locks of one exclude the other; a waiting client gets the lock when it is
# released, by a callback from the gateway; a client that crashes and boots again loses its locks; locks survive a crash
# of the gateway, and no other client gets them meanwhile.
#
# The gateway and an rpcbind run in a network of their own. $NFS_RUNNER names a program that boots a machine in
# it: see lib/network.sh.
#
# Environment, with its defaults:
#   NFS_RUNNER=         see above; must be given
#   LIMIT_S=300         time limit of each machine
#   GRACE_S=20          grace period of the gateway
#   FB_BINARY=          the program; without it the release build of this checkout, built if need be
. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/network.sh"

need_network
LIMIT_S=${LIMIT_S:-300} GRACE_S=${GRACE_S:-20}
PROGRAM=$(forebay_binary)
work_folder locks
export FOREBAY_CLIENTS=10.99.0.0/24 FOREBAY_SQUASH=none FOREBAY_LOG_LEVEL=debug
export FOREBAY_DATA_DIR=$WORK/data FOREBAY_STORE=file://$WORK/bucket FOREBAY_LOCK_GRACE=${GRACE_S}s
start_network locks
told() { grep -c 'accepted the lock that it waited for' "$LOG" || true; }

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
# The state that a machine with a disk would find there after booting again.
ask a sh shell "mkdir -p $WORK/nfs && cp -a /var/lib/nfs/sm /var/lib/nfs/state $WORK/nfs/"
crash_machine a
ask b one fcntl f ex try 0 100
expect "what a crashed client held is not free by itself" refused
send b one fcntl f ex wait 0 100
boot a 10.99.0.2
ask a sh shell "cp -a $WORK/nfs/sm $WORK/nfs/state /var/lib/nfs/ && chown -R statd /var/lib/nfs && sm-notify -f"
answer b 60
expect "b has it when a has booted again" held
ask a one fcntl f ex try 0 100
expect "a does not have it any more" refused

touch "$CONTROL/a.end" "$CONTROL/b.end"
[ "$FAILED" -eq 0 ] || tail -n 30 "$LOG"
summary
