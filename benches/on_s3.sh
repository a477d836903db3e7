#!/usr/bin/env bash
# Cold reads and uploads with the bucket of a real S3 server on this machine, through the S3 client:
#
#   benches/on_s3.sh [versitygw|minio] [cold_reads|uploads] [OPTIONS OF THE TABLES ...]
#   benches/on_s3.sh minio --rounds 5
#   benches/on_s3.sh uploads --only burst
#
# The server uses a part of the processors and of the disk. The heads of benches/tables/{cold_reads,uploads}.rs explain
# the figures. The server is built with Go the first time (tests/lib/common.sh).
exec </dev/null
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/lib/common.sh

SERVER=versitygw
case "${1:-}" in
versitygw | minio)
    SERVER=$1
    shift
    ;;
esac
TABLES=(uploads cold_reads)
case "${1:-}" in
uploads | cold_reads)
    TABLES=("$1")
    shift
    ;;
esac
program=$(s3_server "$SERVER")
port=$(free_port)
work_folder on-s3
mkdir -p "$WORK/buckets/bench"
export AWS_ACCESS_KEY_ID=bench AWS_SECRET_ACCESS_KEY=bench-secret AWS_REGION=us-east-1
export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null
case $SERVER in
versitygw)
    ROOT_ACCESS_KEY=$AWS_ACCESS_KEY_ID ROOT_SECRET_KEY=$AWS_SECRET_ACCESS_KEY \
        "$program" --port "127.0.0.1:$port" --quiet posix "$WORK/buckets" >"$WORK/server.log" 2>&1 &
    ;;
minio)
    MINIO_ROOT_USER=$AWS_ACCESS_KEY_ID MINIO_ROOT_PASSWORD=$AWS_SECRET_ACCESS_KEY MINIO_BROWSER=off MINIO_UPDATE=off \
        "$program" server "$WORK/buckets" --address "127.0.0.1:$port" --quiet >"$WORK/server.log" 2>&1 &
    ;;
esac
server=$!
at_exit "end_process $server"
wait_for_port "$port" "$server" 30 || die "$SERVER does not start: $(cat "$WORK/server.log")"
cargo bench --bench tables -- "${TABLES[@]}" --store s3://bench/tables "$@"
