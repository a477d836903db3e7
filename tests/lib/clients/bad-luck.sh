# Scenarios of clients.sh in which the gateway or machines fail; sourced, not run, because clients.sh ends them.

# Proves: hard mounts repeat all calls that were in flight when the gateway was killed after it is back, over one
# connection and over eight, and every byte is correct; programs notice nothing.
gateway_killed_while_clients_write() {
    local machine pieces=$([ -n "$LONG" ] && echo 32 || echo 12) gone=$OUT/gone
    # Each continues until the gateway was killed, and then to the end of its round: whenever that happens, calls are in
    # flight.
    for machine in a b; do
        begin $machine large killed "head -c $((pieces * 4))M /dev/urandom >/dev/shm/large && cd /mnt/nfs && \
            until [ -e $gone ]; do for i in \$(seq 0 $((pieces - 1))); do \
                dd if=/dev/shm/large of=killed-$machine bs=4M count=1 skip=\$i seek=\$i conv=notrunc,fsync status=none || exit 1; \
                touch $OUT/writes-$machine; done; done && \
            echo 3 >/proc/sys/vm/drop_caches && cmp /dev/shm/large killed-$machine && rm /dev/shm/large"
    done
    ONLY= begin a small killed-tree "cd /mnt/nfs && n=0 && until [ -e $gone ]; do \
            n=\$((n + 1)); rm -rf killed-tree && cp -a $TREE killed-tree || exit 1; touch $OUT/writes-tree; done && \
        echo 3 >/proc/sys/vm/drop_caches && diff -r $TREE killed-tree"
    ONLY= begin b small killed-synced "cd /mnt/nfs && n=0 && until [ -e $gone ]; do \
            n=\$((n + 1)); echo \$n | dd of=killed-synced oflag=append conv=notrunc,fsync status=none || exit 1; \
            touch $OUT/writes-synced; done && \
        echo 3 >/proc/sys/vm/drop_caches && seq \$n | cmp - killed-synced"
    for machine in a b tree synced; do
        wait_for 60 test -e "$OUT/writes-$machine" || fail "killed: $machine does not write"
    done
    kill_gateway
    # Long enough for failed attempts to connect.
    sleep 1
    touch "$gone"
    sleep 0.5
    check "killed: the gateway goes while all still write" still_running a killed b killed a killed-tree b killed-synced
    start
    done_by killed "two machines go on writing, and read every byte" a b
    ONLY= done_by killed-tree "a tree is copied on, whole" a
    ONLY= done_by killed-synced "lines that are synced one by one are all there, once" b
}
# still_running MACHINE NAME ...
still_running() {
    while [ $# -gt 0 ]; do
        [ ! -e "$CONTROL/$1.reply.${NUMBER[$1-$2]}" ] || {
            say "$2 on $1 is done already: $(cat "$CONTROL/$1.reply.${NUMBER[$1-$2]}")"
            return 1
        }
        shift 2
    done
}

# Proves: programs that wait for a gateway that does not answer can be killed, whatever call they wait for; and the
# gateway continues without damage.
program_killed_while_the_gateway_is_silent() {
    ask a main shell "echo before >/mnt/nfs/silent; sync"
    signal_gateway STOP
    # All at once, each for 2 s; 137 is the exit status after SIGKILL.
    send a main shell "for call in 'stat /mnt/nfs/no-such-name' 'ls /mnt/nfs/libnfs' 'mkdir /mnt/nfs/silent-made' \
        'dd if=/dev/zero of=/mnt/nfs/silent-large bs=1M count=4 conv=fsync' 'flock /mnt/nfs/silent true'; do \
        { timeout -s KILL 2 \$call >/dev/null 2>&1; echo \$?; } & done; wait"
    answer a 40
    signal_gateway CONT
    expect "interrupted: programs that wait for a silent gateway can be killed" "0 137 137 137 137 137 "
    ask a main shell "cat /mnt/nfs/silent; rm -rf /mnt/nfs/silent-*; flock -w 30 /mnt/nfs/silent cat /mnt/nfs/silent; \
        mkdir /mnt/nfs/silent-made && rmdir /mnt/nfs/silent-made && echo well"
    expect "interrupted: the machine goes on when the gateway does" "0 before before well "
}

dirty_bytes() { "$PROGRAM" status --json --config "$GATEWAY/forebay.toml" | sed -n 's/.*"dirty_bytes": \([0-9]*\).*/\1/p'; }
nothing_is_dirty() { [ "$(dirty_bytes)" = 0 ]; }
no_connection_from() { [ "$(in_network ss -Htn "( sport = :2049 )" dst "$1" | grep -vc TIME-WAIT)" -eq 0 ]; }

# Proves: a machine that vanishes while it writes, without closing its connections, blocks no other: others write and
# read, the data that it has sent reach the bucket, and its memory is freed. Its lock stays until it boots again (NLM
# has no leases), and is free then. In the long form: its connections are closed.
machine_vanishes_while_it_writes() {
    local before
    ask c lock shell "touch /mnt/nfs/vanished /mnt/nfs/locked"
    ask c lock fcntl locked ex try 0 0
    expect "vanished: c holds a lock" held
    before=$(dirty_bytes)
    send c write shell "while :; do dd if=/dev/zero of=/mnt/nfs/vanished bs=1M count=40 status=none conv=notrunc; done"
    if wait_for 20 dirty_more_than $((before + (2 << 20))); then
        pass "vanished: c writes ($(dirty_bytes) bytes are dirty)"
    else
        fail "vanished: c does not write"
    fi
    # The state that a machine with a disk would find there after booting again.
    ask c save shell "mkdir -p $WORK/nfs && cp -a /var/lib/nfs/sm /var/lib/nfs/state $WORK/nfs/"
    crash_machine c
    ask b one fcntl locked ex try 0 0
    expect "vanished: its lock waits for it" refused
    send b one fcntl locked ex wait 0 0
    ask a main shell "cp -a $TREE /mnt/nfs/beside && diff -r $TREE /mnt/nfs/beside && rm -r /mnt/nfs/beside && echo well"
    expect "vanished: others go on" "0 well "
    if wait_for 60 nothing_is_dirty; then
        pass "vanished: what it had sent is in the bucket, and no memory is kept for it"
    else
        fail "vanished: $(dirty_bytes) bytes stay dirty"
    fi
    if [ -n "$LONG" ]; then
        if wait_for 300 no_connection_from 10.99.0.4; then
            pass "vanished: its connections are given up"
        else
            fail "vanished: $(in_network ss -Htno "( sport = :2049 )" dst 10.99.0.4)"
        fi
    fi
    boot c 10.99.0.4
    ask c sh shell "cp -a $WORK/nfs/sm $WORK/nfs/state /var/lib/nfs/ && chown -R statd /var/lib/nfs && sm-notify -f"
    answer b 40
    expect "vanished: another has its lock when it has booted again" held
    ask b one unlock locked 0 0
    ask c lock shell "echo again >/mnt/nfs/vanished && cat /mnt/nfs/vanished"
    expect "vanished: it writes again itself" "0 again "
}
dirty_more_than() { [ "$(dirty_bytes)" -gt "$1" ]; }
