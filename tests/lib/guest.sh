#!/usr/bin/env bash
# Finds a guest that boots here for the runner that brings the kernel's NFS client (kmount.sh):
#
#   eval "$(NFS_RUNNER=... tests/lib/guest.sh)"
#
# Prints nothing where Debian 12's own User-Mode Linux boots. On processors whose state of floating point is larger than
# that kernel knows (AMX: Linux before 6.13 ends with `put_fp_registers`), it takes a newer one from Debian's unstable
# distribution, with the C library that this was linked with, and prints KM_UML= and KM_MODDIR= for the runner.
# Ends with 1, and the reason, where neither boots. Root is needed, as for the runner.
#
# Environment:
#   NFS_RUNNER=   the runner; must be given
#   TEST_BIN=     downloaded programs are kept below this folder
. "$(dirname "$0")/common.sh"

[ -n "${NFS_RUNNER:-}" ] || die "NFS_RUNNER is not set"
work_folder guest

# boots: whether the runner can run a command. It needs a listener, which receives nothing.
boots() {
    local port status=0 listener
    port=$(free_port)
    python3 -c 'import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(300)' "$port" &
    listener=$!
    wait_for_port "$port" "$listener" 20 || status=1
    [ "$status" -ne 0 ] || KM_NOMOUNT=1 KM_TIMEOUT=120 "$NFS_RUNNER" "$port" true >"$WORK/console" 2>&1 </dev/null || status=1
    kill "$listener" && wait "$listener" || true
    return "$status"
}

# newer_guest FOLDER: puts a newer kernel, its modules and its C library there.
newer_guest() {
    local folder=$1 at=$WORK/packages mirror
    # The machine's own mirror.
    mirror=$(apt-get -q --print-uris download user-mode-linux | sed -n "s|^'\(.*\)/pool/.*|\1|p" | head -n 1)
    [ -n "$mirror" ] || die "this machine's package sources do not have user-mode-linux"
    mkdir -p "$at/lists/partial" "$at/cache/archives/partial"
    echo "deb $mirror unstable main" >"$at/sources.list"
    # Separate from the machine's own package lists: it installs nothing from there.
    local apt=(apt-get -q -o "Dir::Etc::sourcelist=$at/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$at/lists" -o "Dir::Cache=$at/cache" -o Acquire::Languages=none -o APT::Sandbox::User=root)
    "${apt[@]}" update >&2
    (cd "$at" && "${apt[@]}" download user-mode-linux libc6 >&2)
    rm -rf "$folder.new"
    mkdir -p "$folder.new"
    for package in "$at"/*.deb; do dpkg-deb -x "$package" "$folder.new"; done
    local libraries=$folder/usr/lib/x86_64-linux-gnu
    patchelf --set-interpreter "$libraries/ld-linux-x86-64.so.2" --set-rpath "$libraries" "$folder.new/usr/bin/linux.uml"
    rm -rf "$folder"
    mv "$folder.new" "$folder"
}

! boots || exit 0
need_programs patchelf:patchelf >&2
NEWER=$TEST_BIN/newer-guest
export KM_UML=$NEWER/usr/bin/linux.uml KM_MODDIR=$NEWER/usr/lib/uml/modules
[ -x "$KM_UML" ] || newer_guest "$NEWER"
boots || {
    tail -n 20 "$WORK/console" >&2
    die "no guest boots on this processor"
}
say "export KM_UML='$KM_UML' KM_MODDIR='$KM_MODDIR'"
