#!/usr/bin/env bash
# cp, mv, du and df on the mount, and Python's compiler.
#
#   copies.sh FOLDER SOURCE
#
# Proves: cp -a --sparse=always keeps every byte and takes no more blocks; mv within the mount keeps inodes and moves
# whole trees, between file systems it copies everything; du counts the written bytes; df counts written bytes and
# subtracts removed ones; python3 -m compileall writes modules that are used, and none a second time.
. "$(dirname "$0")/scenario.sh"
SOURCE=${2:?a source}

# ---- cp ----------------------------------------------------------------------------------------

mkdir sparse
dd if=/dev/zero of=sparse/zeros bs=1M count=6 status=none
head -c 100000 /dev/urandom | dd of=sparse/zeros bs=4096 seek=700 conv=notrunc status=none
truncate -s 9M sparse/hole
head -c 5000000 /dev/urandom >sparse/full
sync
blocks() { du -s --block-size=512 "$1" | cut -f1; }
fewer_blocks() {
    du --block-size=512 sparse/* copy/*
    # Zeros are holes now, in pieces of the 1 MiB that the mount gives as its block size.
    [ "$(blocks copy/zeros)" -le $((1 << 11)) ] && [ "$(blocks copy/zeros)" -ge 195 ] &&
        [ "$(blocks sparse/zeros)" -eq $((6 << 11)) ] && [ "$(blocks copy/hole)" -le "$(blocks sparse/hole)" ] &&
        [ "$(blocks copy/full)" -le "$(blocks sparse/full)" ]
}
check "cp -a --sparse=always" cp -a --sparse=always sparse copy
forget
check "keeps every byte, time and mode" same_tree sparse copy
check "and takes no more blocks" fewer_blocks
check "cp of a hole with --sparse=never" cp --sparse=never sparse/hole filled
check "has the same bytes" cmp sparse/hole filled

# ---- du, df ------------------------------------------------------------------------------------

used() { df -B1 --output=used . | tail -n 1 | tr -d ' '; }
check "du counts a full file's bytes" equal "$(((5000000 + 511) / 512))" blocks sparse/full
check "and the size of holes if asked" equal $((9 << 20)) bash -c 'du -sb sparse/hole | cut -f1'
mkdir alone
# Other clients write a little meanwhile.
before=$(used)
head -c 100M /dev/zero >alone/large && sync
grown=$(($(used) - before))
rm alone/large
shrunk=$(($(used) - before))
near() { say "$1 of $2"; [ "$1" -ge $(($2 - (40 << 20))) ] && [ "$1" -le $(($2 + (40 << 20))) ]; }
check "df has what was written" near "$grown" $((100 << 20))
check "and gives it back" near "$shrunk" 0
rm -r alone

# ---- mv ----------------------------------------------------------------------------------------

cp -a "$SOURCE" "$LOCAL/tree"
cp -a "$LOCAL/tree" tree
inodes() { (cd "$1" && find . -type f -printf '%i %p\n' | LC_ALL=C sort); }
inodes tree >"$LOCAL/inodes"
mkdir -p target/empty
check "mv of a tree within the mount" mv tree target/moved
check "keeps each inode" cmp "$LOCAL/inodes" <(inodes target/moved)
check "and the old name is gone" test ! -e tree
check "mv -T onto an empty directory" mv -T target/moved target/empty
check "it has replaced it" same_tree "$LOCAL/tree" target/empty
check "mv -T onto a full one" refused "Directory not empty" mv -T sparse target/empty
check "mv into itself" refused "subdirectory of itself" mv target target/empty/inside
check "rename into itself" refused "Invalid argument" /usr/bin/python3 -c 'import os; os.rename("target", "target/empty/inside")'
check "mv away from the mount" mv target/empty "$LOCAL/away"
check "copies all" same_tree "$LOCAL/tree" "$LOCAL/away"
check "mv to the mount" mv "$LOCAL/away" back
forget
check "copies all again" same_tree "$LOCAL/tree" back

# ---- python ------------------------------------------------------------------------------------

mkdir modules
cp "$(/usr/bin/python3 -c 'import json; print(json.__path__[0])')"/*.py modules/
compile_all() { /usr/bin/python3 -m compileall -q modules; }
products() { find modules -name '*.pyc' -printf '%p %i %T@ %s\n' | LC_ALL=C sort; }
check "python3 -m compileall" compile_all
products >"$LOCAL/products"
check "a product for each module" equal "$(find modules -name '*.py' | wc -l)" bash -c "wc -l <'$LOCAL/products'"
forget
check "once more" compile_all
check "compiles nothing again" cmp "$LOCAL/products" <(products)
check "Python takes what was compiled" grep -q "modules/__pycache__/decoder.*matches .*modules/decoder.py" \
    <(/usr/bin/python3 -v -c 'import modules.decoder' 2>&1)
cd /
summary
