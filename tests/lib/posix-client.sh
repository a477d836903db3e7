#!/usr/bin/env bash
# The client's half of posix.sh: pjdfstest three times on the folder $MOUNT, as root on this machine or in a
# virtual one that sees its files.
#
#   posix-client.sh PJDFSTEST FOLDER
#
# FOLDER has posix.toml and remount.toml, gets remount.out, root.out and user.out, and must be accessible to all users.
# posix_results.py judges the outcomes of the cases.
#
# FOLDER also gets `kept`, the content of a file, of which the other half makes a snapshot before the first case, and
# `read-back`, what that snapshot has after the last one.
. "$(dirname "$0")/common.sh"
set +e
program=$1 folder=$2

# A second file system, for operations that must fail between file systems.
other=$(mktemp -d /dev/shm/forebay-posix.XXXXXX)
at_exit 'rm -rf "$other"'
chmod 755 "$other" "$MOUNT"

mkdir "$MOUNT/before"
head -c 300000 /dev/urandom >"$MOUNT/before/kept"
sync -f "$MOUNT"
cp "$MOUNT/before/kept" "$folder/kept.part" && mv "$folder/kept.part" "$folder/kept"
appears "$folder/kept.done"
rm -r "$MOUNT/before"

# Cases that remount read-only come first and alone: the kernel refuses that while any file is open for writing, as
# other cases leave some for a moment.
"$program" -c "$folder/remount.toml" -p "$MOUNT" erofs >"$folder/remount.out" 2>&1
"$program" -c "$folder/posix.toml" -p "$MOUNT" -s "$other" >"$folder/root.out" 2>&1

for folder_of_user in "$MOUNT/user" "$other/user"; do
    mkdir "$folder_of_user"
    chown nobody:nogroup "$folder_of_user"
done
setpriv --reuid nobody --regid nogroup --clear-groups \
    "$program" -c "$folder/posix.toml" -p "$MOUNT/user" -s "$other/user" >"$folder/user.out" 2>&1
cp "$MOUNT/.snapshot/kept/before/kept" "$folder/read-back"
exit 0
