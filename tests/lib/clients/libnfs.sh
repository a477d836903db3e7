# The scenario libnfs of clients.sh; sourced, not run: libnfs needs no kernel, and no machine of its own.
#
# Proves: the utilities of libnfs (nfs-ls, nfs-cp, nfs-cat), as a user whose ports are above 1023, list and copy in and
# out, every byte, where an export allows such ports, and are refused where it does not; with ports found by rpcbind,
# and with given ports.

# Runs a command as the user nobody; it copies from a folder of this user.
as_nobody() { in_network setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }

libnfs() {
    local files=$WORK/libnfs base=nfs://127.0.0.1/libnfs ports='?nfsport=2049&mountport=2049'
    install -d -o 65534 "$files"
    head -c 5000001 /dev/urandom >"$files/large"
    : >"$files/empty"
    chmod 644 "$files"/*

    # The exit code of libnfs 4.0 shows neither error nor reason: its output is checked.
    refused_at() {
        local said
        said=$(as_nobody timeout 20 nfs-ls "$1" 2>&1) && return 1
        grep -qiE 'access|denied|weak|permission' <<<"$said" || {
            say "$said"
            return 1
        }
    }
    # names FOLDER WANTED: exactly these names and sizes.
    names() { [ "$(as_nobody timeout 20 nfs-ls "$1" | awk '{ print $NF ":" $5 }' | LC_ALL=C sort | xargs)" = "$2" ]; }
    same_from() { as_nobody timeout 60 nfs-cat "$1" | cmp - "$2"; }

    check "libnfs: a user's port is refused where ports have to be secure" refused_at "nfs://127.0.0.1/secure"
    check "libnfs: nfs-cp to the gateway" as_nobody timeout 60 nfs-cp "$files/large" "$base/large"
    check "libnfs: of an empty file" as_nobody timeout 60 nfs-cp "$files/empty" "$base/empty$ports"
    check "libnfs: nfs-ls" names "$base" "empty:0 large:5000001"
    check "libnfs: nfs-ls with ports given" names "$base$ports" "empty:0 large:5000001"
    check "libnfs: nfs-cp from the gateway" as_nobody timeout 60 nfs-cp "$base/large$ports" "$files/back"
    check "libnfs: every byte" cmp "$files/large" "$files/back"
    check "libnfs: nfs-cat" same_from "$base/large" "$files/large"
    ask a libnfs shell "cmp $files/large /mnt/nfs/libnfs/large && stat -c %u:%g:%s /mnt/nfs/libnfs/large"
    expect "libnfs: the kernel's client sees the same" "0 65534:65534:5000001 "
    check "libnfs: nfs-ls -R over what others make meanwhile" as_nobody timeout 60 nfs-ls -R "$base"
}
