#!/usr/bin/env bash
# Bytes that other programs put into a bucket for the data of the table `at_rest`, and the requests for that:
#
#   benches/at_rest.sh
#
# Writes the data to a folder, in steps (cargo bench --bench tables -- at_rest --write-to FOLDER), and makes each of
# these programs store one step after the other in its own MinIO. Prints a table of added bytes and requests, as counted
# by MinIO.
#
# | what    | does                                        | needs                  |
# | rclone  | `rclone copy` of the folder                 | rclone                 |
# | s3fs    | `cp -r` into its mounted bucket             | root, s3fs, /dev/fuse  |
# | restic  | `restic backup` of the folder (it seals too) | restic                |
# | zstd    | `tar | zstd -1`: no bucket, bytes alone     | zstd                   |
#
# Programs that are not installed are left out, which a line reports. Needs 8 GiB in TMPDIR.
. "$(dirname "$0")/../tests/lib/common.sh"

TABLES=${TABLES_BINARY:-$(bench_binary tables)}
MINIO=$(s3_server minio)
work_folder at-rest
DATA=$WORK/data
"$TABLES" --bench at_rest --write-to "$DATA" "$@"

export MINIO_PROMETHEUS_AUTH_TYPE=public
mkdir -p "$WORK/minio/rclone" "$WORK/minio/s3fs" "$WORK/minio/restic"
start_minio "$MINIO" "$WORK/minio" "$(free_port)"
at_exit 'end_process $STORE_PID 5'

# All requests of S3 that MinIO has answered, once it has counted the last one, and the bytes of a bucket's objects.
requests() {
    # Its counts are up to 10 s old.
    sleep 11
    curl -sf "$AWS_ENDPOINT_URL/minio/v2/metrics/cluster" |
        awk '/^minio_s3_requests_total/ { sum += $NF } END { printf "%d\n", sum }'
}
bytes() { rclone_here size --json "store:$1" | sed 's/.*"bytes":\([0-9]*\).*/\1/'; }
rclone_here() {
    # rclone does not accept a bundle of authorities from there, and fails.
    env -u AWS_CA_BUNDLE AWS_REQUEST_CHECKSUM_CALCULATION=when_required RCLONE_CONFIG=/dev/null \
        RCLONE_CONFIG_STORE_TYPE=s3 RCLONE_CONFIG_STORE_PROVIDER=Minio \
        RCLONE_CONFIG_STORE_ENV_AUTH=true RCLONE_CONFIG_STORE_ENDPOINT=$AWS_ENDPOINT_URL \
        rclone "$@"
}
command -v rclone >/dev/null || die "rclone is needed to count bytes: apt-get install rclone"

# take_rclone STEP FOLDER and so on: takes the folder DATA/STEP/FOLDER.
take_rclone() { rclone_here copy --no-traverse "$DATA/$1/$2" "store:rclone/$2"; }
take_s3fs() { mkdir -p "$WORK/s3fs/mounted/$2" && cp -r "$DATA/$1/$2/." "$WORK/s3fs/mounted/$2/"; }
take_restic() {
    # The usual use: the same folder, again and again.
    mkdir -p "$WORK/restic/$2" && cp -r "$DATA/$1/$2/." "$WORK/restic/$2/"
    restic backup --quiet --no-cache "$WORK/restic/$2"
}

TAKERS=(rclone)
if command -v s3fs >/dev/null && [ "$(id -u)" = 0 ] && [ -c /dev/fuse ]; then
    mkdir -p "$WORK/s3fs/mounted" "$WORK/s3fs/tmp"
    (umask 077 && say "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" >"$WORK/s3fs/password")
    s3fs s3fs "$WORK/s3fs/mounted" -o "url=$AWS_ENDPOINT_URL" -o use_path_request_style \
        -o "passwd_file=$WORK/s3fs/password" -o "tmpdir=$WORK/s3fs/tmp"
    at_exit "umount -l '$WORK/s3fs/mounted'"
    TAKERS+=(s3fs)
else
    say "s3fs is left out: it is not installed, or this is not root with /dev/fuse" >&2
fi
if command -v restic >/dev/null; then
    export RESTIC_REPOSITORY=s3:$AWS_ENDPOINT_URL/restic RESTIC_PASSWORD=at-rest
    restic init --quiet
    TAKERS+=(restic)
else
    say "restic is left out: it is not installed" >&2
fi

head='| | bytes |' line='|---|---|'
for taker in "${TAKERS[@]}"; do head+=" $taker | requests |" line+='---|---|'; done
say "$head zstd -1 |"
say "$line---|"
megabytes() { awk -v bytes="$1" 'BEGIN { printf "%.2f MB", bytes / 1e6 }'; }
row() {
    local name=$1 step=$2 folder=$3 taker answered asked cells
    local -A before=() counts=()
    cells="| $name | $(megabytes "$(du -sb --apparent-size "$DATA/$step/$folder" | cut -f1)") |"
    for taker in "${TAKERS[@]}"; do before[$taker]=$(bytes "$taker"); done
    # Asking for bytes takes requests as well: no other one between here and the last one that counts.
    answered=$(requests)
    for taker in "${TAKERS[@]}"; do
        "take_$taker" "$step" "$folder" >&2
        asked=$(requests)
        counts[$taker]=$((asked - answered)) answered=$asked
    done
    for taker in "${TAKERS[@]}"; do
        cells+=" $(megabytes $(($(bytes "$taker") - ${before[$taker]}))) | ${counts[$taker]} |"
    done
    say "$cells $(megabytes "$(tar -C "$DATA/$step" -cf - "$folder" | zstd -1 -c | wc -c)") |"
}
row 'a source tree' 0 tree
row 'a copy of it' 1 tree
row 'a file that grows, its first version' 0 versions
row 'all its versions' 1 versions
row 'a file of 1 GiB' 0 large
row '1 % of it rewritten, 4 KiB anywhere' 1 large
row '10,000 small files' 0 small
