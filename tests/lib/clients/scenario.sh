# Helpers of the scenarios of clients.sh, which run in a machine that has mounted the export; sourced, not run.
#
#   . "$(dirname "$0")/scenario.sh"
#
# A scenario is called with its own folder of the mount, which begins empty; its final content is compared again after
# the gateway was killed. Provides the checks of common.sh, and: FOLDER (where the scenario runs), LOCAL (memory of this
# machine), forget, equal, same, listing, same_tree.

. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
set +e

FOLDER=${1:?the folder of the scenario}
mkdir -p "$FOLDER" && cd "$FOLDER" || exit 1
LOCAL=$(mktemp -d "/dev/shm/forebay-scenario.XXXXXX")
at_exit "rm -rf '$LOCAL'"
LONG=${LONG:-}

# With the second in which it was found.
pass() {
    PASSED=$((PASSED + 1))
    say "ok      $* ($SECONDS s)"
}
# Drops the page cache, so that this machine's memory answers nothing that was read or written before.
forget() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
}
# equal WANTED COMMAND ...: the command succeeds and prints exactly that.
equal() {
    local wanted=$1 said
    shift
    said=$("$@") || {
        say "failed: $*"
        return 1
    }
    [ "$said" = "$wanted" ] || {
        say "said: $said"
        say "not:  $wanted"
        return 1
    }
}
# silent COMMAND ...: the command succeeds and prints nothing.
silent() { equal "" "$@"; }
# refused WHY COMMAND ...: the command fails with this reason.
refused() {
    local why=$1 said
    shift
    if said=$("$@" 2>&1); then
        say "not refused: $said"
        return 1
    fi
    grep -q "$why" <<<"$said" || {
        say "not for this reason: $said"
        return 1
    }
}
# listing FOLDER: each name below it with kind, mode, owner, links, size, time to the nanosecond and target. Sizes of
# directories, and the time of the one at the top, differ between file systems.
listing() {
    (cd "$1" && find . -mindepth 1 \( -type d -printf '%p %y %m %U:%G %T@\n' -o -printf '%p %y %m %U:%G %n %s %T@ %l\n' \)) |
        LC_ALL=C sort
}
checksums() { (cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum); }
# Names of the same file, a line for each file with several names.
links() {
    (cd "$1" && find . -type f -links +1 -printf '%i %p\n') | LC_ALL=C sort |
        awk '{ names[$1] = names[$1] " " $2 } END { for (file in names) print names[file] }' | LC_ALL=C sort
}
# same_tree ONE OTHER: the same names with everything that listing shows, links and bytes.
same_tree() {
    local what
    for what in listing links checksums; do
        diff <("$what" "$1") <("$what" "$2") >"$LOCAL/difference" || {
            say "$what differs:"
            cat "$LOCAL/difference"
            return 1
        }
    done
    [ -n "$(ls -A "$1")" ]
}
