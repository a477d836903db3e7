#!/usr/bin/env bash
# git on the mount: clones a repository, changes, commits, branches, merges, packs it again, and checks all objects.
#
#   git.sh FOLDER REPOSITORY
#
# Proves: git reads what it has written (fsck --full --strict, by checksums); the trees are those of the cloned
# repository; with cold caches the state is clean, so times, sizes and inodes are the ones in git's index; a clone on
# the mount, which shares objects by hard links, has all of them.
. "$(dirname "$0")/scenario.sh"
REPOSITORY=${2:?the repository}

export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=$LOCAL/config HOME=$LOCAL
export GIT_AUTHOR_NAME=Test GIT_AUTHOR_EMAIL=test@localhost
export GIT_COMMITTER_NAME=Test GIT_COMMITTER_EMAIL=test@localhost
git config --global safe.directory '*'
git config --global gc.auto 0
git config --global advice.detachedHead false

tree() { git -C "$1" rev-parse 'HEAD^{tree}'; }
commits() { git -C "$1" rev-list --count HEAD; }
files() { find . -path ./.git -prune -o -type f -print | wc -l; }
# Reads each file's bytes, because the index is made again without its cached attributes.
status_by_bytes() {
    rm .git/index && git reset -q && git status --porcelain --untracked-files=all
}
change() {
    git checkout -qb change &&
        for index in $(seq 1 20); do printf 'line %s\n' "$index" >>"file-$index"; done &&
        git rm -q "$(git ls-files | head -n 1)" && git add --all && git commit -qm change
}
merge() {
    git checkout -q - && echo main >only-here && git add only-here && git commit -qm main &&
        git merge -q --no-edit change
}

check "clone" git clone -q --no-local "$REPOSITORY" clone
check "its tree is the repository's" equal "$(tree "$REPOSITORY")" tree clone
check "all of its history is there" equal "$(commits "$REPOSITORY")" commits clone
cd clone || exit 1
forget
# Nothing refreshes the index: stat must return the same as at the checkout, or git would read the file.
check "nothing looks changed with cold caches" silent git diff-files --name-only
check "every file is checked out" equal "$(git ls-files | wc -l)" files
check "commit on a branch" change
check "merge" merge
check "both sides are in it" test -e only-here -a -e file-20
merged=$(tree .)
check "gc" git gc -q --prune=now
check "it leaves one pack and no loose object" \
    equal "count: 0 packs: 1" bash -c "git count-objects -v | grep -E '^(count|packs):' | xargs"
forget
check "fsck with cold caches" git fsck --full --strict --no-progress
check "the tree is as it was merged" equal "$merged" tree .
check "clean, by what git remembers of files" silent git diff-files --name-only
check "clean, by the bytes of files" silent status_by_bytes
check "clone on the mount" git clone -q -n . ../second
check "it shares the pack by a link" \
    bash -c '[ "$(stat -c %h:%i .git/objects/pack/*.pack)" = "$(stat -c %h:%i ../second/.git/objects/pack/*.pack)" ] &&
             [ "$(stat -c %h .git/objects/pack/*.pack)" -eq 2 ]'
check "with the same tree" equal "$merged" tree ../second
[ -z "$LONG" ] || check "and all its objects" git -C ../second fsck --full --strict --no-progress
cd /
summary
