#!/usr/bin/env bash
# find on the mount finds the same names as in a local copy.
#
#   find.sh FOLDER SOURCE
#
# Proves: the results of READDIR and GETATTR with cold caches: kinds, sizes, times, links, modes, owners, emptiness,
# inode numbers (which are unique, stable, and the same by name and by listing), and directories with more entries than
# one reply holds.
. "$(dirname "$0")/scenario.sh"
cp -a "${2:?a source}" "$LOCAL/tree"
cd "$LOCAL/tree" || exit 1
mkdir many && cd many && seq -f 'name-%05.0f' 1 "$([ -n "$LONG" ] && echo 20000 || echo 600)" | xargs touch && cd .. || exit 1
mkdir -p empty/er && ln many/name-00001 linked && ln -s many symbolic && mkfifo pipe
touch -d '2020-01-01 00:00:00.000000005 UTC' older && touch -d '2020-01-01 00:00:00.000000006 UTC' newer
chmod 0640 older && chown 7:8 newer
cd "$FOLDER" || exit 1
cp -a "$LOCAL/tree" tree
forget

found() { (cd "$1" && shift && find . "$@" -print0 | LC_ALL=C sort -z | sha256sum); }
# alike CONDITION ...: the same names here as there, and at least one.
alike() {
    [ -n "$(find "$LOCAL/tree" "$@" -print -quit)" ] || { say "nothing to find"; return 1; }
    equal "$(found "$LOCAL/tree" "$@")" found tree "$@"
}
count() { find tree -printf '%i\n' | "$@" | wc -l; }
inode_is_listed() { [ "$(ls -i1 "tree/many" | awk -v n="$1" '$2 == n { print $1 }')" = "$(stat -c %i "tree/many/$1")" ]; }
inode_is_found() { equal "tree/newer" find tree -inum "$(stat -c %i tree/newer)"; }
check "the tree, by all that names have" same_tree "$LOCAL/tree" tree
# The listing answers -type and -name; attributes answer the others.
for condition in '-type d' '-type p' '-name name-*7' '-type f -size +10k' '-empty' '-links 2 -type f' '-perm 640' '-uid 7 -gid 8' \
    '-depth -mindepth 2'; do
    set -f
    check "find $condition" alike $condition
    set +f
done
check "a nanosecond newer" equal tree/newer find tree -maxdepth 1 -name 'newer' -newer tree/older
check "and not the other way round" silent find tree -maxdepth 1 -name 'older' -newer tree/newer
check "-samefile" equal "tree/linked tree/many/name-00001" \
    bash -c 'find tree -samefile tree/linked | LC_ALL=C sort | xargs'
check "-inum" inode_is_found
check "the inode number is the same by listing and by name" inode_is_listed name-00500
names=$(find "$LOCAL/tree" | wc -l)
check "every name once" equal "$names" count cat
check "inode numbers are unique but for the linked file" equal "$((names - 1))" count sort -u
check "find -delete" find tree/many -name 'name-*3' -delete
find "$LOCAL/tree/many" -name 'name-*3' -delete
check "deletes those and no others" alike -name 'name-*'
cd /
summary
