#!/usr/bin/env bash
# rsync -a to the mount, twice.
#
#   rsync.sh FOLDER SOURCE
#
# Proves: the second time, with cold caches, nothing is transferred or set, so times (to the nanosecond), modes, owners
# and sizes are as they were set; not even when all bytes are compared. Changed files are transferred, and no others;
# from the mount back as well.
. "$(dirname "$0")/scenario.sh"
cp -a "${2:?a source}" "$LOCAL/source"
SOURCE=$LOCAL/source
ln "$SOURCE/$(cd "$SOURCE" && find . -type f | LC_ALL=C sort | head -n 1)" "$SOURCE/linked"
ln -s target "$SOURCE/symbolic"
# rsync leaves a symbolic link its time of copying, if that is in the same second.
touch -h -d "2001-02-03 04:05:06.789012345" "$SOURCE/symbolic"

sync_to() { rsync -aH --delete --itemize-changes "$@"; }
moved() { rsync -aH --delete --stats "$@" | sed -n 's/^Number of regular files transferred: //p'; }

# The first name of a file with several names is transferred, and links to it are made.
check "the first time all is moved" equal "$(find "$SOURCE" -type f -printf '%i\n' | sort -u | wc -l)" moved "$SOURCE/" copy/
forget
check "the second time nothing is" silent sync_to "$SOURCE/" copy/
check "which the figures say, too" equal 0 moved "$SOURCE/" copy/
check "not even by the bytes" silent sync_to --checksum "$SOURCE/" copy/
check "the copy is the source" same_tree "$SOURCE" copy

one=$(cd "$SOURCE" && find . -type f -links 1 -size +2k -printf '%P\n' | LC_ALL=C sort | head -n 1)
other=$(cd "$SOURCE" && find . -type f -links 1 -size +2k -printf '%P\n' | LC_ALL=C sort | sed -n 2p)
printf x | dd of="$SOURCE/$one" bs=1 seek=1000 conv=notrunc status=none
rm "$SOURCE/$other"
forget
check "a changed file and a removed one are all that is done" \
    equal "*deleting $other >f..t $one" bash -c "$(declare -f sync_to); sync_to '$SOURCE/' copy/ |
        grep -v '^\.d' | sed 's/^\(>f..t\)\.* /\1 /; s/^\*deleting */*deleting /' | xargs"
check "the copy is the source again" same_tree "$SOURCE" copy
check "and from the mount back" rsync -aH copy/ "$LOCAL/back/"
check "it is the source" same_tree "$SOURCE" "$LOCAL/back"
cd /
summary
