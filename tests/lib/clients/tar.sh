#!/usr/bin/env bash
# tar into the mount and out of it: a tree with everything that an archive can hold.
#
#   tar.sh FOLDER
#
# Proves: kinds, modes (setuid, setgid and sticky too), owners, times to the nanosecond and before 2000, symbolic and
# hard links, names of 255 bytes and names that are no UTF-8, holes, and every byte, with cold caches; an archive on the
# mount as well.
. "$(dirname "$0")/scenario.sh"
T=$LOCAL/tree

make_tree() {
    local index name
    mkdir -p "$T/deep/a/b/c/d/e" "$T/empty" "$T/many" && cd "$T" || return
    head -c 1M /dev/urandom >many/1 && split -a 3 -n 99 --numeric-suffixes=2 many/1 many/ || return
    for index in $(seq 2 10); do mv "many/$(printf '%03d' "$index")" "many/$index" || return; done
    for name in $'new\nline' $'not \xff UTF-8' '-dash' ' blank ' '*' "it's" '"' '\'; do echo "$name" >"deep/$name" || return; done
    head -c 100 /dev/urandom >"deep/$(printf 'n%.0s' $(seq 255))"
    ln many/1 deep/hard && ln many/1 deep/a/hard && ln many/2 many/also-2
    ln -s ../many/3 deep/symbolic && ln -s "$(printf 'x%.0s' $(seq 1000))" deep/far && ln -s nowhere dangling
    mkfifo pipe && mknod device c 1 3
    truncate -s 5M holes && echo middle | dd of=holes bs=1 seek=2500001 conv=notrunc status=none
    truncate -s 1M hole-at-end && echo begin | dd of=hole-at-end conv=notrunc status=none
    chmod 4755 many/4 && chmod 2755 many/5 && chmod 1777 empty && chmod 0000 many/6 && chmod 0400 many/7
    chown 1234:5678 many/8 && chown -h 99:99 dangling && chown 65534:65534 deep/a
    touch -d '1998-01-02 03:04:05.678901234 UTC' many/9 && touch -h -d '2001-02-03 04:05:06.000000001 UTC' dangling
    touch -d '1970-01-01 00:00:01 UTC' many/10
    touch -d '2010-11-12 13:14:15.999999999 UTC' deep/a/b
}
# Holes do not grow: counts blocks of 512 bytes.
blocks() { (cd "$1" && stat -c %b holes); }
no_fewer_holes() {
    say "blocks: $(blocks "$2"), not more than $(blocks "$1")"
    [ "$(blocks "$2")" -le "$(blocks "$1")" ] && [ "$(blocks "$2")" -gt 0 ]
}
pack() { tar --format=posix --sparse -C "$1" -cf "$2" .; }
unpack() { mkdir "$2" && tar -C "$2" -xpf "$1" --same-owner --numeric-owner; }

check "a tree to pack" make_tree
cd "$FOLDER" || exit 1
check "pack" pack "$T" "$LOCAL/tree.tar"
check "unpack on the mount" unpack "$LOCAL/tree.tar" in
forget
check "it is the tree" same_tree "$T" in
check "with its holes" no_fewer_holes "$T" in
check "tar itself sees no difference" tar -C in --numeric-owner -df "$LOCAL/tree.tar"
check "pack from the mount to the mount" pack in packed.tar
forget
check "unpack from the mount" unpack packed.tar "$LOCAL/out"
check "it is the tree again" same_tree "$T" "$LOCAL/out"
cd /
summary
