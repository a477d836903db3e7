#!/usr/bin/env bash
# The client's half of fsx.sh: runs fsx on files of the folder $MOUNT, as root on this machine or in a virtual one.
#
#   fsx-client.sh FSX FOLDER OPERATIONS NAME:SEED ...
#
# Each run is OPERATIONS operations with the configuration FOLDER/fsx-NAME.toml. Meanwhile this machine drops its page
# cache twice a second, so that more is read from the gateway than this client would have cached of its own writes. Ends
# with a non-zero status at the first difference, with the output of fsx.
set -uo pipefail
fsx=$1 folder=$2 operations=$3
shift 3
(while sleep 0.5; do echo 1 >/proc/sys/vm/drop_caches; done) &
forgetting=$!
trap 'kill $forgetting' EXIT

now() { date +%s.%N; }
for run in "$@"; do
    name=${run%%:*} seed=${run#*:} began=$(now)
    if ! said=$("$fsx" -f "$folder/fsx-$name.toml" -N "$operations" -S "$seed" -P "$folder" "$MOUNT/$name-$seed" 2>&1); then
        tail -n 60 <<<"$said"
        echo "fsx differs: configuration $name, seed $seed, within $operations operations"
        exit 1
    fi
    rm -f "$MOUNT/$name-$seed"
    awk -v a="$began" -v b="$(now)" -v run="$name, seed $seed" -v n="$operations" \
        'BEGIN { printf "        %s: %d operations in %.1f s\n", run, n, b - a }' | tee -a "$folder/runs"
done
