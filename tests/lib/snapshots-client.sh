#!/usr/bin/env bash
# The client's half of snapshots.sh, on this machine or in a virtual one that sees its files:
#
#   snapshots-client.sh make|change|hidden|visible|restored|open|deleted|trash|trash_again|sealed FOLDER
#
# with the volume mounted at $MOUNT; FOLDER is shared with the other half.
. "$(dirname "$0")/common.sh"
FOLDER=$2
cd "$MOUNT"
export GIT_CONFIG_GLOBAL=/dev/null GIT_OPTIONAL_LOCKS=0
THEN=.snapshot/then

# described TREE: every object with its kind, rights, links, size, times, target, and the contents of files.
described() {
    (
        cd "$1"
        find . -printf '%P %y %m %n %U %G %T@ %l ' \( -type d -printf '\n' -o -printf '%s\n' \) | LC_ALL=C sort
        find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    )
}
# same TREE FILE: the tree is as described.
same() { described "$1" | cmp - "$2"; }
# refused WHY COMMAND ...: the command fails with this reason.
refused() {
    local why=$1 said
    shift
    if said=$("$@" 2>&1); then
        say "not refused: $said"
        return 1
    fi
    grep -q "$why" <<<"$said" || {
        say "not for this reason: $said"
        return 1
    }
}
# without TEXT COMMAND ...: the command succeeds, and prints nothing with that text.
without() {
    local text=$1 said
    shift
    said=$("$@" 2>&1) || {
        say "failed: $said"
        return 1
    }
    ! grep -q -- "$text" <<<"$said"
}
number() { stat -c %d:%i "$1"; }
differ() { [ "$1" != "$2" ]; }
nothing_at() { [ ! -e "$1" ]; }
git_is_clean() { [ -z "$(git -C "$1" status --porcelain)" ]; }
# kib OPTIONS ...: as du counts them.
kib() { du -s "$@" | cut -f1; }
equal() { [ "$1" = "$2" ] || { say "$1 is not $2"; return 1; }; }

make() { check "a tree is made" make_tree; }
make_tree() {
    mkdir -p tree/deep/er tree/closed
    cp -a "$TESTS/lib" tree/tests
    head -c 3000000 /dev/urandom >tree/large
    ln tree/large tree/deep/link
    ln -s deep/link tree/symbolic
    mkfifo tree/fifo
    chmod 700 tree/closed
    (
        cd tree
        git init -q repository
        cp -a "$TESTS/lib" repository/
        cd repository
        git -c user.name=n -c user.email=e add -A
        git -c user.name=n -c user.email=e commit -qm first
    )
    described tree >"$FOLDER/then"
    sync -f .
}

change() { check "the tree is changed" change_tree; }
change_tree() {
    printf 'new text' | dd of=tree/large conv=notrunc status=none
    rm -r tree/tests tree/fifo
    mv tree/deep tree/moved
    mkdir late
    (cd tree/repository && git rm -qr lib && git -c user.name=n -c user.email=e commit -qm second)
    described tree >"$FOLDER/now"
    sync -f .
}

# What holds in both ways to show snapshots.
both() {
    check "the snapshot has the tree as it was" same "$THEN/tree" "$FOLDER/then"
    check "also from below" same "tree/$THEN" "$FOLDER/then"
    check "the volume has the tree as it is" same tree "$FOLDER/now"
    check "a file has other numbers than the file as it was" \
        differ "$(number tree/large)" "$(number $THEN/tree/large)"
    check "so has the directory" differ "$(number tree)" "$(number $THEN/tree)"
    check "a younger directory is not in the snapshot" nothing_at "late/$THEN"
    check "the snapshot has no snapshots" nothing_at "$THEN/.snapshot"
    check "nothing can be made in it" refused "Read-only file system" touch "$THEN/new"
    check "nothing can be written" refused "Permission denied\|Read-only file system" dd if=/dev/zero of="$THEN/tree/large" count=1 conv=notrunc
    check "nothing can be removed" refused "Read-only file system" rm -f "$THEN/tree/large"
    check "rights stay" refused "Read-only file system" chmod 777 "$THEN/tree/closed"
    check "no snapshot is made by mkdir" refused "" mkdir .snapshot/mine
    check "git finds the repository clean" git_is_clean "$THEN/tree/repository"
    check "df of the snapshot shows what it has, and nothing free" df_is_sane
    check "copied back it is the same" same_copy
    check "rsync -aH copies it" copied_is_then rsync -aH "$THEN/tree" /tmp/then
    check "tar copies it" copied_is_then packed -C "$THEN" tree
    check "du counts in it what a copy of it has" du_is_sane
}
same_copy() {
    cp -a "$THEN/tree" back && same back "$FOLDER/then" && rm -r back
}
# copied_is_then COMMAND ...: the command copies the tree of the snapshot to /tmp/then.
copied_is_then() {
    rm -rf /tmp/then && mkdir /tmp/then && "$@" && same /tmp/then/tree "$FOLDER/then" && diff -r --no-dereference "$THEN/tree/tests" /tmp/then/tree/tests
}
packed() { tar --format=posix -cf - "$@" | tar -xf - -C /tmp/then; }
# bytes TREE ...: of all files, one with several names once.
bytes() { find "$@" -type f -print0 | du --files0-from=- --apparent-size -cB1 | tail -n 1 | cut -f1; }
# A file and what it was are two files, each of which counts.
du_is_sane() {
    equal "$(bytes "$THEN/tree")" "$(bytes /tmp/then/tree)" &&
        equal "$(bytes "$THEN/tree" tree)" $(($(bytes "$THEN/tree") + $(bytes tree)))
}
df_is_sane() {
    local size used avail files files_used files_free block has
    read -r size used avail files files_used files_free < <(df -B1 --output=size,used,avail,itotal,iused,iavail "$THEN" | tail -n 1)
    equal "0 0" "$avail $files_free" && equal "$size $files" "$used $files_used" || return 1
    # In blocks, as the client counts them.
    block=$(stat -f -c %S "$THEN") has=$(bytes "$THEN")
    equal "$used" $(((has + block - 1) / block * block)) || return 1
    has=$(find "$THEN" -printf '%i\n' | sort -u | wc -l)
    equal "$files_used" "$has"
}
# Of `.snapshot` a copy of the volume alone has nothing; where listings show it, the names of snapshots.
SHOWN=
# copy_is_same NAME COMMAND ...: the command copies the volume to a folder, which then has the tree, and nothing of snapshots.
copy_is_same() {
    local to=$1
    shift
    rm -rf "$to" && mkdir "$to" && "$@" && same "$to/tree" "$FOLDER/now" && nothing_of_snapshots "$to" && rm -r "$to"
}
nothing_of_snapshots() {
    local there
    there=$(cd "$1" && find . -path "./.snapshot$SHOWN")
    [ -z "$there" ] || { say "$there"; return 1; }
}
# copy_has_both COMMAND ...: the command copies the volume with its snapshots to /tmp/copy.
copy_has_both() {
    rm -rf /tmp/copy && mkdir /tmp/copy && "$@" && same /tmp/copy/tree "$FOLDER/now" && same "/tmp/copy/$THEN/tree" "$FOLDER/then" &&
        same /tmp/copy/.snapshot/later/tree "$FOLDER/now" && nothing_at "/tmp/copy/$THEN/.snapshot" && rm -r /tmp/copy
}
tarred() { tar --format=posix "$@" -cf - . | tar -xf - -C /tmp/copy; }

hidden() {
    check "no listing shows the snapshots" without '\.snapshot' ls -a .
    check "find does not enter them" without '\.snapshot' find .
    check "du counts the tree alone" equal "$(kib -x .)" "$(kib .)"
    check "tar does not enter them" without '\.snapshot' tar -cf /dev/null -v .
    check "cp -a copies the tree alone" copy_is_same /tmp/copy cp -a . /tmp/copy
    check "rsync -aH copies the tree alone" copy_is_same /tmp/copy rsync -aH ./ /tmp/copy
    both
    check "rm -r removes a directory that has snapshots" rm -r late
    mkdir late
}

visible() {
    SHOWN='/*/*'
    check "the listing of the export shows the snapshots" grep -qx .snapshot <(ls -a .)
    check "no other listing does" without '\.snapshot' ls -a tree
    check "find sees no loop" without "File system loop" find .
    check "find -xdev does not enter a snapshot" without "$THEN/" find . -xdev
    check "du -x does not count snapshots" equal "$(kib -x .)" "$(kib --exclude=.snapshot .)"
    check "rsync -aHx copies no snapshot" copy_is_same /tmp/copy rsync -aHx ./ /tmp/copy
    check "cp -ax copies no snapshot" copy_is_same /tmp/copy cp -ax . /tmp/copy
    check "tar --one-file-system copies no snapshot" copy_is_same /tmp/copy tarred --one-file-system
    check "cp -a copies the tree and each snapshot, none twice" copy_has_both cp -a . /tmp/copy
    both
}

restored() {
    check "a restored tree is the one of the snapshot" same back "$FOLDER/then"
    check "git finds the restored repository clean" git_is_clean back/repository
    check "a restored file has a number of its own" \
        differ "$(number back/large)" "$(number "$THEN/tree/large")"
    check "a file was restored in place of another" cmp late/large "$THEN/tree/large"
    check "the other one is beside it" cmp late/large.before-restore tree/large
}

# step FILE: the other half takes its turn.
step() { touch "$FOLDER/$1" && appears "$FOLDER/$1.done"; }
# What this machine has read is read again from the gateway.
forget() { echo 3 >/proc/sys/vm/drop_caches; }
# A megabyte of the open file, from where it was read to.
megabyte() { dd bs=1000000 count=1 iflag=fullblock status=none <&3; }
next_is() { megabyte | cmp - <(tail -c "+$1" /tmp/large | head -c 1000000); }
no_byte() { [ ! -s /tmp/stale ]; }

open() {
    cp "$THEN/tree/large" /tmp/large
    check "a file is copied" grep -q "$(sha256sum </tmp/large | cut -d ' ' -f 1)  ./large" "$FOLDER/then"
    exec 3<"$THEN/tree/large" 4<"$THEN/tree" 5<tree/large
    check "the beginning of an open file" next_is 1
    check "the gateway is restarted" step opened
    forget
    check "the file is readable over a restart" next_is 1000001
    check "the snapshot is deleted" step read
    forget
    check "the file is stale without its snapshot" refused "Stale file handle" megabyte
    megabyte >/tmp/stale 2>/dev/null || true
    check "no byte comes" no_byte
    check "so is the directory" refused "Stale file handle" ls /proc/self/fd/4/
    check "a file of the volume that is open goes on" cmp tree/large - <&5
    exec 3<&- 4<&- 5<&-
}

sealed() {
    SHOWN='/*/*'
    make
    check "a snapshot is made, and the gateway restarted" step made
    forget
    change
    check "another snapshot is made" step changed
    check "the snapshot has the tree as it was" same "$THEN/tree" "$FOLDER/then"
    check "the other one has it as it is" same ".snapshot/later/tree" "$FOLDER/now"
    check "the volume has it as it is" same tree "$FOLDER/now"
    check "rsync -aHx copies no snapshot" copy_is_same /tmp/copy rsync -aHx ./ /tmp/copy
    check "cp -a copies the tree and each snapshot, none twice" copy_has_both cp -a . /tmp/copy
    check "df of the snapshot shows what it has, and nothing free" df_is_sane
    check "rsync -aH copies it" copied_is_then rsync -aH "$THEN/tree" /tmp/then
    check "nothing can be made in it" refused "Read-only file system" touch "$THEN/new"
}

deleted() {
    check "a restored tree stays without its snapshot" same back "$FOLDER/then"
    check "a restored tree can be removed" rm -r back
    check "a deleted snapshot is gone" nothing_at "$THEN"
    check "the other one has the tree as it was then" same ".snapshot/later/tree" "$FOLDER/now"
    check "the volume has the tree as it is" same tree "$FOLDER/now"
}

# as_user UID COMMAND ...: as a user without a name.
as_user() {
    local uid=$1
    shift
    setpriv --reuid "$uid" --regid "$uid" --clear-groups "$@"
}
# removed_by UID NAME TEXT: the user makes a file in drawer, and removes it. Its name in the trash is on the output.
removed_by() {
    local number
    as_user "$1" sh -c "printf %s '$3' >'drawer/$2'" && number=$(stat -c %i "drawer/$2") && as_user "$1" rm "drawer/$2" && printf '%s.%s' "$2" "$number"
}
# ls_as UID: the names in the trash, in one line.
ls_as() { as_user "$1" ls .trash | tr '\n' ' '; }

trash() {
    mkdir drawer && chmod 1777 drawer
    local report notes secret
    report=$(removed_by 1000 report.odt 'of ann')
    notes=$(removed_by 1000 notes 'also of ann')
    secret=$(removed_by 0 secret 'of root')
    check "no listing shows the trash" without '\.trash' ls -a .
    check "root sees all files" equal "$notes $report $secret " "$(ls_as 0)"
    check "their owner sees two, though root has listed all" equal "$notes $report " "$(ls_as 1000)"
    check "another user sees none" equal "" "$(ls_as 1001)"
    check "root still sees all" equal "$notes $report $secret " "$(ls_as 0)"
    check "a file of another one is not there" refused "No such file" as_user 1001 stat ".trash/$report"
    check "nor for its owner one of root" refused "No such file" as_user 1000 cat ".trash/$secret"
    check "the owner reads a file" equal "of ann" "$(as_user 1000 cat ".trash/$report")"
    check "root reads it" equal "of ann" "$(cat ".trash/$report")"
    check "it has one link and its number" equal "1 ${report##*.}" "$(as_user 1000 stat -c '%h %i' ".trash/$report")"
    check "nothing is made there" refused "Read-only file system" touch .trash/new
    check "nothing is written" refused "Permission denied\|Read-only file system" as_user 1000 sh -c "echo x >>'.trash/$report'"
    check "rights stay" refused "Read-only file system" as_user 1000 chmod 777 ".trash/$report"
    check "a taken name is not replaced" refused "File exists\|are the same" taken "$report"
    check "the owner moves a file back" as_user 1000 mv ".trash/$report" drawer/report.odt
    check "it has its content" equal "of ann" "$(as_user 1000 cat drawer/report.odt)"
    check "it has its number" equal "${report##*.}" "$(stat -c %i drawer/report.odt)"
    check "it can be written again" as_user 1000 sh -c 'echo more >>drawer/report.odt'
    check "the owner deletes a file for good" as_user 1000 rm -f ".trash/$notes"
    check "another user deletes nothing" as_user 1001 rm -f ".trash/$secret"
    check "root has one left" equal "$secret " "$(ls_as 0)"
    check "du and find do not see the trash" without 'secret' find .
    printf %s "$secret" >"$FOLDER/secret"
    sync -f .
}
# taken NAME: as a program that calls rename(2) itself.
taken() {
    as_user 1000 sh -c 'echo other >drawer/taken' && as_user 1000 perl -e 'rename($ARGV[0], $ARGV[1]) or die "$!\n"' ".trash/$1" drawer/taken
}

trash_again() {
    local secret
    secret=$(cat "$FOLDER/secret")
    check "the listing of the export shows the trash" grep -qx .trash <(ls -a .)
    check "no other listing does" without '\.trash' ls -a drawer
    check "what was moved back is there" equal "of annmore" "$(cat drawer/report.odt)"
    check "the trash has what it had" equal "$secret " "$(ls_as 0)"
    check "and nothing for another user" equal "" "$(ls_as 1000)"
    check "root moves it back" mv ".trash/$secret" secret
    check "it has its content" equal "of root" "$(cat secret)"
    check "the trash is empty" equal "" "$(ls_as 0)"
    check "rm -r does not touch it" rm -r drawer
    check "a removed tree leaves its file in it" grep -q '^report.odt' <(ls .trash)
}

"$1"
summary
