#!/usr/bin/env bash
# The client's half of fsx.sh: runs fsx on files of the folder $MOUNT, as root on this machine or in a virtual one.
#
#   fsx-client.sh FSX FOLDER OPERATIONS NAME:SEED ...
#
# Each run is OPERATIONS operations with the configuration FOLDER/fsx-NAME.toml. Meanwhile this machine drops its page
# cache twice a second, so that more is read from the gateway than this client would have cached of its own writes. Ends
# with a non-zero status at the first difference, with the output of fsx.
#
# The other half makes snapshots from the moment when FOLDER/finished is there. Files that are finished are then compared
# in each snapshot that has them.
. "$(dirname "$0")/common.sh"
fsx=$1 folder=$2 operations=$3
shift 3
(while sleep 0.5; do echo 1 >/proc/sys/vm/drop_caches; done) &
forgetting=$!
at_exit 'kill $forgetting'

mkdir "$MOUNT/finished"
head -c 1000000 /dev/urandom >"$MOUNT/finished/first"
sync -f "$MOUNT"
touch "$folder/finished"
for run in "$@"; do
    name=${run%%:*} seed=${run#*:} began=$(seconds_now)
    if ! said=$("$fsx" -f "$folder/fsx-$name.toml" -N "$operations" -S "$seed" -P "$folder" "$MOUNT/$name-$seed" 2>&1); then
        tail -n 60 <<<"$said"
        echo "fsx differs: configuration $name, seed $seed, within $operations operations"
        exit 1
    fi
    mv "$MOUNT/$name-$seed" "$MOUNT/finished/"
    sync -f "$MOUNT"
    awk -v a="$began" -v b="$(seconds_now)" -v run="$name, seed $seed" -v n="$operations" \
        'BEGIN { printf "        %s: %d operations in %.1f s\n", run, n, b - a }' | tee -a "$folder/runs"
done

touch "$folder/compare"
appears "$folder/compare.done"
compared=0
for snapshot in $(ls -v "$MOUNT/.snapshot"); do
    then=$MOUNT/.snapshot/$snapshot/finished
    files=$(ls "$then")
    # Each has the first; the last one, which was made after everything, has all.
    [ -e "$then/first" ] || { echo "snapshot $snapshot has no finished file"; exit 1; }
    for file in $files; do
        cmp "$then/$file" "$MOUNT/finished/$file" || { echo "$file differs in snapshot $snapshot"; exit 1; }
        compared=$((compared + 1))
    done
done
[ "$files" = "$(ls "$MOUNT/finished")" ] || { echo "the last snapshot, $snapshot, has $files"; exit 1; }
echo "        $compared finished files compared in snapshots" | tee -a "$folder/runs"
