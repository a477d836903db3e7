#!/usr/bin/env bash
# The client's half of quota.sh, on this machine or in a virtual one that sees its files:
#
#   quota-client.sh prepare|tree|volume
#
# with / (prepare, volume) or /home (tree) mounted at $MOUNT. /home may hold 8 MiB and 10 objects, the volume 64 MiB.
. "$(dirname "$0")/common.sh"
cd "$MOUNT"

MIB=$((1 << 20))

# equal WANTED COMMAND ...: the command prints exactly that.
equal() {
    local wanted=$1 said
    shift
    said=$("$@")
    [ "$said" = "$wanted" ] || {
        say "said: $said"
        say "not:  $wanted"
        return 1
    }
}
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
# sizes FOLDER: total, used and available bytes of the file system there.
sizes() { df -B1 --output=size,used,avail "$1" | awk 'NR == 2 { print $1, $2, $3 }'; }
# at_most BYTES: no more bytes are used here, and some are.
at_most() {
    local used
    used=$(sizes . | cut -d' ' -f2)
    say "used: $used"
    [ "$used" -le "$1" ] && [ "$used" -gt 0 ]
}
# objects FOLDER: limit, used and available number of objects.
objects() { df --output=itotal,iused,iavail "$1" | awk 'NR == 2 { print $1, $2, $3 }'; }
# direct FILE COUNT: writes COUNT MiB, each of which is at the server before the next begins.
direct() { dd if=/dev/zero of="$1" bs=1M count="$2" oflag=direct status=none; }
# cached FILE COUNT: writes COUNT MiB through the page cache.
cached() { dd if=/dev/zero of="$1" bs=1M count="$2" conv=notrunc,fsync status=none; }
fill_names() { for index in $(seq 1 9); do : >"name$index"; done; }

prepare() {
    check "directories" mkdir home outside
}

tree() {
    check "df shows the limit" equal "$((8 * MIB)) 0 $((8 * MIB))" sizes .
    check "df shows the limit of objects" equal "10 1 9" objects .

    check "a file that is too large is refused" refused "Disk quota exceeded" direct file 9
    check "it has all bytes that fit" equal "$((8 * MIB))" stat -c %s file
    check "df shows that the directory is full" equal "$((8 * MIB)) $((8 * MIB)) 0" sizes .
    check "one byte more is refused" refused "Disk quota exceeded" \
        dd if=/dev/zero of=file bs=1 count=1 seek="$((8 * MIB))" conv=notrunc,fsync status=none
    check "what is there can be written over" cached file 8
    check "another file can be made, and stays empty" refused "Disk quota exceeded" cached other 1

    rm file other
    check "removal makes room" equal "$((8 * MIB)) 0 $((8 * MIB))" sizes .
    check "through the page cache too much is refused at fsync" refused "Disk quota exceeded" cached file 12
    check "and no more is taken than fits" at_most "$((8 * MIB))"
    truncate -s 0 file
    check "cutting off makes room" cached file 8
    check "for all of it" equal "$((8 * MIB)) $((8 * MIB)) 0" sizes .

    rm file
    check "nine objects beside the directory" fill_names
    check "the tenth is refused" refused "Disk quota exceeded" mkdir directory
    check "df shows that there may be no more" equal "10 10 0" objects .
    rm name*
    check "and that there may be again" equal "10 1 9" objects .
}

volume() {
    check "the volume shows its own limit" equal "$((64 * MIB)) 0 $((64 * MIB))" sizes .
    check "the directory shows its quota under the volume's mount" equal "$((8 * MIB))" \
        bash -c 'set -- $(stat -f -c "%S %b" home) && echo $(($1 * $2))'
    check "4 MiB outside" cached outside/file 4
    check "mv into the directory copies" mv outside/file home/file
    check "and it counts there" equal "$((8 * MIB)) $((4 * MIB))" \
        bash -c 'set -- $(stat -f -c "%S %b %f" home) && echo $(($1 * $2)) $(($1 * ($2 - $3)))'
    check "a second name outside is refused" refused "Invalid cross-device link" ln home/file outside/file

    check "a full volume has no space" refused "No space left on device" direct outside/large 61
    check "what fits is there" equal "$((60 * MIB))" stat -c %s outside/large
    check "df shows that the volume is full" equal "$((64 * MIB)) $((64 * MIB)) 0" sizes .
    check "so is the directory, below its own limit" refused "No space left on device" direct home/second 1
    rm outside/large home/second
    check "removal makes room in the volume" cached outside/large 60
    rm outside/large home/file
    check "and all of it is free in the end" equal "$((64 * MIB)) 0 $((64 * MIB))" sizes .
}

"${1:?which part}"
# A folder in use cannot be unmounted.
cd /
summary
