#!/usr/bin/env bash
# TLS as the Linux kernel's NFS client speaks it (xprtsec=tls and mtls; tlshd does its handshakes):
#
#   tests/tls.sh
#
# Exports that require no TLS, TLS, and a certificate are mounted in clear, with TLS, and with a certificate: refusals
# are checked, and that data are read back the same with a cold cache. Then the gateway is killed and started again
# while a client with a certificate and four connections writes.
#
# Needs root, Linux 6.5 or newer with CONFIG_TLS and CONFIG_NET_HANDSHAKE, tlshd (ktls-utils) and openssl. Where the
# kernel has no NFS, $NFS_RUNNER names a program that boots one that has: see main-job.sh.
#
# Environment, with its defaults:
#   NFS_RUNNER=         see above; the client's kernel is then the runner's
#   TLSHD=tlshd         how tlshd is started
#   FILES=100           files of 300 kB that are written while the gateway is killed
#   LIMIT_S=200         time limit of the client
#   FB_BINARY=          the program; without it the release build of this checkout, built if need be
. "$(dirname "$0")/lib/common.sh"

[ "$(id -u)" = 0 ] || die "must be root, to mount"
command -v openssl >/dev/null || die "needs openssl, to make certificates"
FILES=${FILES:-100} LIMIT_S=${LIMIT_S:-200} NFS_RUNNER=${NFS_RUNNER:-}
PROGRAM=$(forebay_binary)
work_folder tls
PORT=$(free_port) SHARE=$WORK/share
mkdir "$SHARE"

# ---- certificates ------------------------------------------------------------------------------

KEY=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
openssl req -x509 "${KEY[@]}" -days 2 -subj "/CN=forebay test" -keyout "$WORK/ca.key" -out "$SHARE/ca.pem" \
    -addext keyUsage=critical,keyCertSign 2>/dev/null
# issue NAME: makes a certificate for the addresses of the gateway as the clients here see them.
issue() {
    openssl req "${KEY[@]}" -subj "/CN=$1" -keyout "$SHARE/$1.key" -out "$WORK/$1.csr" 2>/dev/null
    openssl x509 -req -in "$WORK/$1.csr" -CA "$SHARE/ca.pem" -CAkey "$WORK/ca.key" -CAcreateserial -days 2 \
        -extfile <(echo "subjectAltName=IP:127.0.0.1,IP:10.99.0.1") -out "$SHARE/$1.pem" 2>/dev/null
    chmod 600 "$SHARE/$1.key"
}
issue server
issue client

# ---- the gateway -------------------------------------------------------------------------------

# Connections of a runner come through a proxy from loopback addresses.
cat >"$WORK/forebay.toml" <<TOML
store = "file://$WORK/bucket"
data_dir = "$WORK/data"
listen = "127.0.0.1:$PORT"
tls_certificate = "$SHARE/server.pem"
tls_key = "$SHARE/server.key"
tls_client_ca = "$SHARE/ca.pem"
[[export]]
path = "/"
[[export]]
path = "/tls"
xprtsec = ["tls", "mtls"]
[[export]]
path = "/mtls"
xprtsec = ["mtls"]
TOML
serve() {
    "$PROGRAM" serve --create --config "$WORK/forebay.toml" </dev/null >>"$WORK/gateway.log" 2>&1 &
    gateway=$!
    wait_for_port "$PORT" "$gateway" 60 || die "the gateway does not start: $(tail -n 3 "$WORK/gateway.log")"
}
serve
at_exit 'end_process $gateway'

# ---- the client --------------------------------------------------------------------------------

CLIENT="SHARE=$SHARE FILES=$FILES TLSHD='${TLSHD:-tlshd}' bash $TESTS/lib/tls_client.sh"
if [ -n "$NFS_RUNNER" ]; then
    KM_NOMOUNT=1 KM_SHARE=$SHARE KM_TIMEOUT=$LIMIT_S "$NFS_RUNNER" "$PORT" \
        "SERVER=\${KM_SRV%%:*} OPTIONS=\$KM_MOPTS MOUNT_POINT=/mnt/nfs $CLIENT" </dev/null >"$WORK/client.log" 2>&1 &
else
    mkdir "$WORK/mount"
    OPTIONS=vers=3,tcp,hard,port=$PORT,mountport=$PORT,nolock SERVER=127.0.0.1 MOUNT_POINT=$WORK/mount \
        timeout "$LIMIT_S" bash -c "$CLIENT" </dev/null >"$WORK/client.log" 2>&1 &
    at_exit "timeout 20 umount -f -l '$WORK/mount' 2>/dev/null"
fi
client=$!
at_exit "end_process $client 15"

while [ ! -e "$SHARE/writing" ] && kill -0 "$client" 2>/dev/null; do sleep 0.1; done
if [ -e "$SHARE/writing" ]; then
    kill -9 "$gateway"
    wait "$gateway" || true
    sleep 1
    serve
    say "killed and started again while the client writes"
fi
status=0
wait "$client" || status=$?
while read -r result name; do
    case $result in
    ok) pass "$name" ;;
    FAILED) fail "$name" ;;
    *) say "        $result $name" ;;
    esac
done <"$WORK/client.log"
check "the client came to its end" [ "$status" -eq 0 ]
summary
