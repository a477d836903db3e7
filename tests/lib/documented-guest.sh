#!/usr/bin/env bash
# The half of documented.sh that runs in a machine of its own:
#
#   documented-guest.sh FOREBAY VERSITYGW
#
# A function for each heading prepares what its text supposes, runs its commands, and looks at what they did. `systemctl`
# and `aws` are functions here: they start, stop and delete what the commands name.
. "$(dirname "$0")/common.sh"
TEXT=$PROJECT/docs/snapshots.md
work_folder guest
mkdir "$WORK/bin"
ln -s "$1" "$WORK/bin/forebay"
PATH=$WORK/bin:$PATH
unset LISTEN

# ---- what the text supposes ---------------------------------------------------------------------

S3_SERVER=$2
STORE_PORT=$(free_port)
# The files of this machine have no extended attributes.
store() { start_versitygw "$S3_SERVER" "$WORK/s3" "$STORE_PORT" --sidecar "$WORK/attributes"; }
export FOREBAY_STORE=s3://bucket/volume FOREBAY_DATA_DIR=$WORK/data FOREBAY_SQUASH=none FOREBAY_TRASH=24h
export FOREBAY_ADMIN_LISTEN=none FOREBAY_LOG_SEGMENT=16MiB FOREBAY_LOG_LIMIT=128MiB FOREBAY_MEMORY_LIMIT=256MiB
declare -A GATEWAYS=()
# serve PORT [flags ...]: a gateway in the background.
serve() {
    local port=$1
    shift
    forebay serve "$@" >>"$WORK/log.$port" 2>&1 </dev/null &
    GATEWAYS[$port]=$!
    wait_for_port "$port" $! 120 || {
        tail -n 20 "$WORK/log.$port"
        return 1
    }
}
# stop PORT: returns the exit code of that gateway. Not in a subshell, whose child it is not.
stop() {
    local pid=${GATEWAYS[$1]}
    unset "GATEWAYS[$1]"
    kill "$pid" && wait "$pid"
}
systemctl() {
    case "$*" in
    "start forebay") serve 2049 --listen 127.0.0.1:2049 --create ;;
    "stop forebay") stop 2049 ;;
    *) die "systemctl $*" ;;
    esac
}
aws() {
    [ "$*" = "s3 rm --recursive s3://bucket/try/" ] || die "aws $*"
    # Without the server: a request of the gateway that has ended may still be under way.
    end_process "$STORE_PID"
    rm -r "$WORK"/{s3,attributes}/bucket/try
    store
}

# ---- commands of the text -----------------------------------------------------------------------

"$TESTS/lib/shell_lines.py" "$TEXT" >"$WORK/all"
: >"$WORK/ran"
# commands HEADING [PATTERN]: those under a heading, of which an extended regular expression selects some.
commands() { awk -F '\t' -v heading="$1" -v wanted="${2:-.}" '$1 == heading && $2 ~ wanted { print $2 }' "$WORK/all"; }
# documented HEADING [PATTERN [SED]]: runs them; SED puts a true value in place of an invented one.
documented() {
    local line
    commands "$1" "${2:-.}" >"$WORK/now"
    [ -s "$WORK/now" ] || fail "no command under '$1' matches ${2:-.}"
    while IFS= read -r line <&7; do
        printf '%s\t%s\n' "$1" "$line" >>"$WORK/ran"
        command_works "$(sed "${3:-}" <<<"$line")"
    done 7<"$WORK/now"
}
# As check, but in this shell: a command may start a process or mount something.
command_works() {
    if eval "$1" >"$WORK/said" 2>&1; then
        pass "$1"
    else
        fail "$1"
        head -n 20 "$WORK/said" | sed 's/^/        /'
    fi
}
has() { check "$1 has '$2'" grep -qx -- "$2" "$1"; }
gone() { check "$1 is not there" test ! -e "$1"; }
said() { check "it says '$1'" grep -q -- "$1" "$WORK/said"; }
write() {
    printf '%s\n' "$2" >"$1"
    sync -f "$1"
}

# ---- sections -----------------------------------------------------------------------------------

snapshots() {
    documented Snapshots
    documented Snapshots create
}
in_a_mount() {
    rm /mnt/home/notes
    documented "In a mount"
    has /mnt/home/notes old
}
putting_back() {
    forebay snapshot create hourly >/dev/null
    rm -r /mnt/project
    documented "Putting something back" "^cp"
    has /mnt/project/plan old
    rm -r /mnt/project
    documented "Putting something back" "restore /project"
    has /mnt/project/plan old
    write /mnt/db/table new
    documented "Putting something back" "restore /db"
    has /mnt/db/table old
    has /mnt/db.before-restore/table new
}
what_changed() {
    write /mnt/home/ann/notes new
    documented "What changed" create
    # The snapshot is in the bucket a moment after the command.
    forebay flush >"$WORK/said"
    documented "What changed" "since before-upgrade$"
    said "content *.*/home/ann/notes"
    documented "What changed" "until|diff"
    said "content *.*/home/ann/notes"
    documented "Versions of a file"
    said "content .* after-upgrade"
}
clones() {
    documented "Clones" "snapshot create|--to"
    # In the background, as a service would be.
    documented "Clones" "^forebay serve" 's/^forebay serve/serve 3049/'
    documented "Clones" "^mount|^mkdir"
    has /srv/try/home/ann/notes new
    write /srv/try/home/ann/notes tried
    write /mnt/home/ann/notes newer
    has /srv/try/home/ann/notes tried
    check "the snapshot is held by the clone" refused forebay snapshot delete try
    umount /srv/try
    command_works "stop 3049"
    documented "Clones" "^aws|forget|delete"
    documented "Clones" "snapshot create|--to"
    FOREBAY_STORE=s3://bucket/try documented "Clones" detach
    check "nothing holds the snapshot" forebay snapshot delete try
    has /mnt/home/ann/notes newer
}
refused() { ! "$@"; }
restoring_a_volume() {
    documented "Restoring a volume"
    has /mnt/home/ann/notes old
    has /mnt/db/table old
    forebay snapshot list >"$WORK/said"
    said before-restore-
    check "the bucket is in order" forebay fsck
}
trash() {
    local number
    rm /mnt/home/ann/report.odt
    rm -r /mnt/home/ann/project
    documented Trash "undelete$"
    said /home/ann/report.odt
    documented Trash "undelete /"
    has /mnt/home/ann/report.odt old
    has /mnt/home/ann/project/plan old
    number=$(stat -c %i /mnt/home/ann/report.odt)
    rm /mnt/home/ann/report.odt
    documented Trash "undelete --id" "s/4711/$number/"
    has /mnt/home/ann/report.old old
}

trash_in_a_mount() {
    local number
    write /mnt/home/ann/report.odt old
    number=$(stat -c %i /mnt/home/ann/report.odt)
    rm /mnt/home/ann/report.odt
    documented "The trash in a mount" "^ls|^cat|^mv" "s/4711/$number/"
    has /mnt/home/ann/report.odt old
    rm /mnt/home/ann/report.odt
    documented "The trash in a mount" "^rm" "s/4711/$number/"
    gone "/mnt/.trash/report.odt.$number"
}

mkdir -p "$WORK/s3/bucket" "$WORK/attributes"
store
at_exit 'for pid in "${GATEWAYS[@]}" "$STORE_PID"; do end_process "$pid" 20; done'
systemctl start forebay
# What operators change is seen at once.
mount -t nfs -o vers=3,tcp,port=2049,mountport=2049,mountproto=tcp,nolock,actimeo=0,lookupcache=none localhost:/ /mnt
at_exit 'cd /; umount -f -l /mnt'
mkdir -p /mnt/home/ann/project /mnt/etc /mnt/project /mnt/db
for file in home/notes home/ann/{notes,report.odt,project/plan} etc/hosts project/plan db/table; do
    write "/mnt/$file" old
done

snapshots
in_a_mount
putting_back
what_changed
clones
restoring_a_volume
trash
trash_in_a_mount
check "every command of the text was run" diff <(sort -u "$WORK/all") <(sort -u "$WORK/ran")
summary
