#!/usr/bin/env bash
# The client of tls.sh, run as root where its kernel is. Prints `ok` or `FAILED` and the name of each check, a line
# each.
#
# Environment: SERVER (address), OPTIONS (of mount, without xprtsec), MOUNT_POINT, SHARE (folder with the certificates),
# FILES, TLSHD.
set -u
modprobe tls 2>/dev/null
echo "kernel $(uname -r)"
umask 077
cat >"$SHARE/tlshd.conf" <<CONF
[debug]
loglevel=0
[authenticate]
[authenticate.client]
x509.truststore=$SHARE/ca.pem
x509.certificate=$SHARE/client.pem
x509.private_key=$SHARE/client.key
CONF
$TLSHD -c "$SHARE/tlshd.conf" >/dev/null 2>&1 &
tlshd=$!
trap 'cd /; umount -l "$MOUNT_POINT" 2>/dev/null; kill $tlshd' EXIT
sleep 1

check() {
    local name=$1
    shift
    if "$@" >/dev/null 2>&1; then echo "ok $name"; else echo "FAILED $name"; fi
}
# mounted PATH XPRTSEC [OPTION]
mounted() { timeout 60 mount -t nfs -o "$OPTIONS,xprtsec=$2${3:-}" "$SERVER:$1" "$MOUNT_POINT"; }
refused() { ! mounted "$@" || { umount "$MOUNT_POINT"; false; }; }
protected() { grep -q " $MOUNT_POINT nfs .*[,=]xprtsec=$1[, ]" /proc/mounts; }
cold() { sync && echo 3 >/proc/sys/vm/drop_caches; }
# The same bytes come back from the server.
same() {
    head -c 20000000 /dev/urandom >"$SHARE/data" && cp "$SHARE/data" "$MOUNT_POINT/data" && cold &&
        cmp "$SHARE/data" "$MOUNT_POINT/data" && rm "$MOUNT_POINT/data"
}

check "/ is mounted in clear" mounted / none
mkdir "$MOUNT_POINT/tls" "$MOUNT_POINT/mtls"
umount "$MOUNT_POINT"
for way in tls mtls; do
    check "/ is mounted with $way, since the client likes it" mounted / "$way"
    check "the kernel says so" protected "$way"
    umount "$MOUNT_POINT"
done
check "/tls is refused in clear" refused /tls none
check "/mtls is refused in clear" refused /mtls none
check "/mtls is refused without a certificate" refused /mtls tls
for way in tls mtls; do
    check "/tls is mounted with $way" mounted /tls "$way"
    check "20 MB come back over it" same
    umount "$MOUNT_POINT"
done
check "/mtls is mounted with a certificate and four connections" mounted /mtls mtls ,nconnect=4
cd "$MOUNT_POINT" || exit 1
for ((file = 1; file <= FILES; file++)); do
    head -c 300000 /dev/urandom >"$file" && sync "$file" && sha256sum "$file" >>"$SHARE/sums" ||
        echo "FAILED to write file $file"
    [ "$file" -ne $((FILES / 5)) ] || touch "$SHARE/writing"
done
cold
check "all $FILES files written while the gateway was killed are right" sha256sum --quiet -c "$SHARE/sums"
check "none is missing" [ "$(wc -l <"$SHARE/sums")" -eq "$FILES" ]
