#!/usr/bin/env bash
# The tools that people use on mounts, through the Linux kernel's NFS client in several virtual machines, and libnfs:
#
#   NFS_RUNNER=... tests/clients.sh [--long]
#
# Three machines mount one gateway, with locks; one of them over eight connections (nconnect=8). They run git, tar,
# rsync, make -j, find, cp, mv, du, df and Python's compiler, and use files that are removed while open; SQLite writes
# one database from two machines; two machines rename in one tree, take jobs from one queue, and remove names that the
# other lists. libnfs lists and copies without a kernel, and showmount lists the exports. Then come faults: the gateway
# is killed while clients write, a program is killed while the gateway does not answer, a machine vanishes while it
# writes and boots again. In the end the gateway is killed once more, and everything that is left is compared: on the
# machines that made it, and on one that has just been booted.
#
# The scenarios are in lib/clients; each says at its head what it proves. --long does more of the same, and also waits
# until the gateway has given up the connections of a machine that has vanished.
#
# $NFS_RUNNER names a program that boots a machine in a network: see lib/network.sh. Programs that are missing are
# installed on Debian and Ubuntu.
#
# Environment, with its defaults:
#   NFS_RUNNER=         see above; must be given
#   KEEP_OUTPUT=        a folder that gets the output of the scenarios
#   ONLY=               run these scenarios alone (names as they are printed), and what they need
#   LIMIT_S=            each machine may run so long; 300, with --long 1800
#   FB_BINARY=          the program; without it the release build of this checkout, built if need be
. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/network.sh"

LONG=
case "$*" in
'') ;;
--long) LONG=yes ;;
*) die "usage: $0 [--long]" ;;
esac
need_programs git:git rsync:rsync tar:tar make:make "cc:gcc libc6-dev" nfs-ls:libnfs-utils showmount:nfs-common \
    rpcbind:rpcbind ip:iproute2 ss:iproute2 setpriv:util-linux /usr/bin/python3:python3
need_network
LIMIT_S=${LIMIT_S:-$([ -n "$LONG" ] && echo 1800 || echo 300)} ONLY=${ONLY:-}
PROGRAM=$(forebay_binary)
began=$(seconds_now)

# A C project with a makefile, which this project's own build has fetched.
shopt -s nullglob
sources=("${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/lz4-sys-*/liblz4)
shopt -u nullglob
[ ${#sources[@]} -gt 0 ] || die "the cargo registry has no source of lz4-sys (cargo fetch)"
SOURCE=${sources[0]}
# The tree that is copied.
TREE=$([ -n "$LONG" ] && say "$SOURCE" || say "$SOURCE/tests")

work_folder clients
# Users other than root must reach the files that libnfs copies.
chmod 755 "$WORK"
GATEWAY=$(mktemp -d /dev/shm/forebay-clients.XXXXXX)
at_exit "rm -rf '$GATEWAY'"
OUT=$WORK/out SCENARIOS=$TESTS/lib/clients
mkdir "$OUT"
[ -z "${KEEP_OUTPUT:-}" ] || at_exit 'cp "$OUT"/* "$KEEP_OUTPUT"/'

cat >"$GATEWAY/forebay.toml" <<TOML
store = "file://$GATEWAY/bucket"
data_dir = "$GATEWAY/data"
lock_grace = "5s"
log_segment = "64MiB"
log_limit = "1GiB"
memory_limit = "256MiB"
[[export]]
path = "/"
clients = ["10.99.0.0/24"]
squash = "no_root_squash"
[[export]]
path = "/secure"
clients = ["127.0.0.0/8"]
[[export]]
path = "/libnfs"
clients = ["127.0.0.0/8"]
source_port = "insecure"
TOML
export FOREBAY_CONFIG=$GATEWAY/forebay.toml
start_network clients

# ---- scenarios ---------------------------------------------------------------------------------

# wanted NAME: whether this scenario is selected.
wanted() { [ -z "$ONLY" ] || [[ " $ONLY " == *" $1 "* ]]; }

# begin MACHINE WORKER NAME COMMAND ...: runs it in a process of the machine; commands of one WORKER run in their order.
declare -A NUMBER
begin() {
    local machine=$1 worker=$2 name=$3
    shift 3
    wanted "$name" || return 0
    send "$machine" "$worker" shell "{ $*; } >$OUT/$machine-$name 2>&1"
    NUMBER[$machine-$name]=${ASKED[$machine]}
}
# succeeded MACHINE NAME [SECONDS]: waits for it. Shows its output if it failed.
succeeded() {
    local machine=$1 name=$2
    answer "$machine" "${3:-$LIMIT_S}" "${NUMBER[$machine-$name]}"
    [ "${ANSWER%% *}" = 0 ] && return
    say "        $name on $machine: $ANSWER"
    tail -n 40 "$OUT/$machine-$name" 2>/dev/null | sed 's/^/        /'
    return 1
}
# done_by NAME WHAT MACHINE ...: prints one line for a scenario that one or several machines have run.
done_by() {
    local name=$1 what=$2 machine status=0 longest=0
    shift 2
    wanted "$name" || return 0
    for machine in "$@"; do
        succeeded "$machine" "$name" || status=1
        longest=$(printf '%s\n' "$longest" "$TOOK" | sort -g | tail -n 1)
    done
    if [ "$status" -eq 0 ]; then pass "$name: $what ($longest s)"; else fail "$name: $what"; fi
}
# scenario MACHINE FILE [ARGUMENT ...]: begins a scenario of lib/clients, in a folder of its name.
scenario() {
    local machine=$1 file=$2 run=bash
    shift 2
    [ "${file##*.}" = sh ] || run=/usr/bin/python3
    begin "$machine" main "${file%.*}" "LONG=$LONG $run $SCENARIOS/$file /mnt/nfs/${file%.*} $*"
}
together() { say "/usr/bin/python3 $SCENARIOS/together.py $*"; }
sqlite() { say "/usr/bin/python3 $SCENARIOS/sqlite.py $*"; }

# ---- the machines ------------------------------------------------------------------------------

MEMORY=512M
begin_boot a 10.99.0.2
OPTIONS=vers=3,tcp,hard,noacl,nconnect=8 begin_boot b 10.99.0.3
MEMORY=256M begin_boot c 10.99.0.4
for machine in a b c; do booted "$machine"; done
ask a main shell "mkdir -m 777 /mnt/nfs/secure /mnt/nfs/libnfs && grep -c '/mnt/nfs .*local_lock=none' /proc/mounts"
expect "mounted with locks" "0 1 "

# ---- tools, on two machines at once ------------------------------------------------------------

scenario a git.sh "$PROJECT"
scenario a tar.sh
scenario a copies.sh "$TREE"
scenario b rsync.sh "$TREE"
scenario b make.sh "$SOURCE"
scenario b find.sh "$TREE"
scenario b unlinked.py

# Meanwhile, without a kernel's client: as a user with unprivileged ports, and with the ports that rpcbind returns.
if wanted libnfs; then
    . "$SCENARIOS/libnfs.sh"
    libnfs
fi
if wanted showmount; then
    exported() { in_network showmount --no-headers -e 127.0.0.1 | tr -s ' ' | LC_ALL=C sort | xargs; }
    check "showmount -e lists what the one who asks may mount" \
        [ "$(exported)" = "/libnfs 127.0.0.0/8 /secure 127.0.0.0/8" ]
    ask a ask shell "showmount --no-headers -e 10.99.0.1 | xargs"
    expect "and shows others what is for them" "0 / 10.99.0.0/24 "
fi

done_by git "clone, commit, merge, gc, fsck; clean with cold caches" a
done_by tar "in and out: kinds, modes, times, links, holes, names" a
done_by copies "cp --sparse, mv, du, df, compileall" a
done_by rsync "a second rsync -a moves nothing" b
done_by make "make -j4 of a C project; nothing is built twice" b
done_by find "names, kinds, sizes, times, inode numbers" b
done_by unlinked "removed and replaced while open (.nfs...)" b
if [ -z "$ONLY" ]; then
    connections() { in_network ss -Htn state established "( sport = :2049 )" dst "$1" | wc -l; }
    check "b has eight connections" [ "$(connections 10.99.0.3)" -eq 8 ]
fi

# ---- two machines at the same files ------------------------------------------------------------

TRANSACTIONS=$([ -n "$LONG" ] && echo 1000 || echo 100)
DATABASE=/mnt/nfs/sqlite.db
if wanted sqlite; then
    ask a main shell "$(sqlite begin $DATABASE)"
    [ "${ANSWER%% *}" = 0 ] || die "cannot make a database: $ANSWER"
fi
for machine in a b; do begin $machine main sqlite "$(sqlite write $DATABASE $machine "$TRANSACTIONS" "$OUT")"; done
done_by sqlite "two machines write one database, $TRANSACTIONS transactions each" a b
for machine in a b; do
    begin $machine main sqlite "echo 3 >/proc/sys/vm/drop_caches; $(sqlite check $DATABASE "$TRANSACTIONS" a b)"
    done_by sqlite "$machine finds every row, and the database sound" $machine
done

SHARED=/mnt/nfs/together
if wanted rename || wanted claim || wanted list; then
    ask a main shell "$(together begin $SHARED)"
    [ "${ANSWER%% *}" = 0 ] || die "cannot prepare: $ANSWER"
fi
me=0
for machine in a b; do
    begin $machine main rename "$(together rename $SHARED $me "$OUT" "$([ -n "$LONG" ] && echo 60 || echo 4)")"
    begin $machine main claim "$(together claim $SHARED $me "$OUT")"
    me=$((me + 1))
done
done_by rename "two machines rename in one tree" a b
done_by claim "two machines take jobs by rename, link and exclusive create" a b
begin a main rename "$(together check-rename $SHARED)"
done_by rename "no file is lost or doubled" a
begin b main claim "$(together check-claim $SHARED)"
done_by claim "no job is taken twice or by nobody" b
begin b main list "$(together list $SHARED)"
begin a main list "sleep 0.5; $(together remove $SHARED)"
done_by list "a directory is removed while another machine lists it" a b

# ---- bad luck ----------------------------------------------------------------------------------

. "$SCENARIOS/bad-luck.sh"
if wanted killed; then gateway_killed_while_clients_write; fi
if wanted interrupted; then program_killed_while_the_gateway_is_silent; fi
if wanted vanished; then
    machine_vanishes_while_it_writes
else
    crash_machine c
    boot c 10.99.0.4
fi

# ---- what is left ------------------------------------------------------------------------------

# Everything except access times, which are not kept.
LIST="cd /mnt/nfs && find . ! -path ./vanished -printf '%p %i %y %m %U:%G %n %s %T@ %l\\n' | LC_ALL=C sort >$OUT/list.NAME && \
      find . -type f ! -path ./vanished -print0 | LC_ALL=C sort -z | xargs -0 sha256sum >>$OUT/list.NAME"
# left_on MACHINE ...: lists the present content into $OUT/list.MACHINE
left_on() {
    local machine
    for machine in "$@"; do begin "$machine" left left "echo 3 >/proc/sys/vm/drop_caches; ${LIST//NAME/$machine}"; done
    for machine in "$@"; do succeeded "$machine" left || return 1; done
}
same_as_before() { diff "$OUT/before" "$OUT/list.$1" | head -n 20 | sed 's/^/        /' | if grep .; then return 1; fi; }
if wanted left; then
    if left_on a; then pass "left: $(wc -l <"$OUT/list.a") lines of names and checksums"; else fail "left: what is there"; fi
    mv "$OUT/list.a" "$OUT/before"
    kill_gateway
    start
    if left_on a b c; then pass "left: read again when the gateway was killed"; else fail "left: to be read again"; fi
    check "left: the same for a" same_as_before a
    check "left: the same for b, over eight connections" same_as_before b
    check "left: the same for c, which was rebooted" same_as_before c
fi

for machine in a b c; do touch "$CONTROL/$machine.end"; done
say "$(seconds_since "$began") s"
[ "$FAILED" -eq 0 ] || grep -E ' (WARN|ERROR|INFO) ' "$LOG" | tail -n 30
summary
