#!/usr/bin/env bash
# Builds a C project on the mount by make -j.
#
#   make.sh FOLDER SOURCE
#
# SOURCE is that of LZ4, from the crate lz4-sys. Proves: four compilers and a linker at once see each other's files; the
# built program runs from the mount; times order sources and products as make needs it, with cold caches: a second make
# builds nothing, and a touched source alone is compiled.
. "$(dirname "$0")/scenario.sh"
cp -a "${2:?a source}"/{Makefile*,lib,programs} . || exit 1
[ -z "$LONG" ] || cp -a "$2/examples" . || exit 1

build() { make -j4 -C programs lz4 V=1 CFLAGS=-O0 >"$LOCAL/said" 2>&1 || ! cat "$LOCAL/said"; }
# The sources that make has compiled.
compiled() {
    build || return
    sed -n 's/.* -c .*[ /]\([a-z0-9_]*\.c\)\( .*\)\?$/\1/p' "$LOCAL/said" | LC_ALL=C sort | xargs
}
runs() {
    ./programs/lz4 -q -f "$1" "$LOCAL/small" && [ "$(stat -c %s "$LOCAL/small")" -lt "$(stat -c %s "$1")" ] &&
        ./programs/lz4 -q -d -f "$LOCAL/small" "$LOCAL/again" && cmp "$1" "$LOCAL/again"
}

check "make -j4" build
check "of several sources" test "$(grep -c -e ' -c .*\.c\b' "$LOCAL/said")" -ge 10
forget
check "the program compresses, and gives every byte back" runs lib/lz4.c
check "nothing is built again" silent compiled
sleep 0.05
touch programs/util.c
forget
check "a touched source is, alone" equal util.c compiled
check "and the program still runs" runs lib/lz4hc.c
if [ -n "$LONG" ]; then
    check "make clean" make -C programs clean
    check "the library" make -j4 -C lib CFLAGS=-O1
    check "and all examples, which run" make -j4 -C examples test CFLAGS=-O1
fi
cd /
summary
