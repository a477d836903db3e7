#!/usr/bin/env bash
# Breaks the program on purpose, one defect at a time, and shows which suite notices:
#
#   tests/mutants.sh [--every] [--list] [NAME ...]
#
# Each file tests/mutants/NAME.patch is one defect: its first line says what it is (`# ...`), those after it
# the suites that must fail with it (`# caught by: COMMAND`, to be run in the project's folder), each of them.
# Without names all are tried. A mutant that no suite catches is a hole in the tests and fails this command, as does
# one that does not compile or no longer applies. First the suites are run without any defect: they must
# pass, or their failing would prove nothing.
#
#   --every   try every suite on every mutant, not just those that are named in it, and list all that
#             catch it; one is enough then
#   --list    say what there is, and try nothing
#
# Works on a copy of the checkout as it is (with changes that are not committed) in
# ~/.cache/forebay-tests/mutants, where build products are kept as well. A suite that does not end within
# LIMIT_S (600) seconds on a mutant has caught it: a defect may be one that hangs.
. "$(dirname "$0")/lib/common.sh"

LIMIT_S=${LIMIT_S:-600}
MUTANTS=$TESTS/mutants
EVERY= LIST=
names=()
for argument in "$@"; do
    case $argument in
    --every) EVERY=1 ;;
    --list) LIST=1 ;;
    -*) die "usage: $0 [--every] [--list] [NAME ...]" ;;
    *) names+=("$argument") ;;
    esac
done
if [ ${#names[@]} -eq 0 ]; then
    for patch in "$MUTANTS"/*.patch; do names+=("$(basename "$patch" .patch)"); done
fi
for name in "${names[@]}"; do [ -f "$MUTANTS/$name.patch" ] || die "there is no $MUTANTS/$name.patch"; done

defect() { sed -n '1s/^# //p' "$MUTANTS/$1.patch"; }
suites_of() { sed -n '2,/^[^#]/s/^# caught by: //p' "$MUTANTS/$1.patch"; }

if [ -n "$LIST" ]; then
    for name in "${names[@]}"; do
        printf '%s: %s\n' "$name" "$(defect "$name")"
        suites_of "$name" | sed 's/^/    /'
    done
    exit 0
fi

# ---- a copy of the checkout ----------------------------------------------------------------------

CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/forebay-tests/mutants
TREE=$CACHE/tree
mkdir -p "$CACHE"
exec 9>"$CACHE/lock"
flock -n 9 || die "another run is using $CACHE"
# Always at the same path, so that what was built for one run serves the next.
export CARGO_TARGET_DIR=$CACHE/target CARGO_TERM_COLOR=never
rm -rf "$TREE"
git clone -q --shared "$PROJECT" "$TREE"
git -C "$TREE" checkout -q "$(git -C "$PROJECT" rev-parse HEAD)"
git -C "$PROJECT" diff --binary HEAD >"$CACHE/uncommitted.patch"
if [ -s "$CACHE/uncommitted.patch" ]; then
    git -C "$TREE" apply "$CACHE/uncommitted.patch"
    git -C "$TREE" -c user.name=mutants -c user.email=mutants@localhost commit -q -a -m "as it is"
fi

# run_suite COMMAND LOG: 0 passed, 1 failed, 2 did not compile, 124 did not end
run_suite() {
    local status=0
    (cd "$TREE" && exec timeout --kill-after=10 "$LIMIT_S" bash -c "$1") >"$2" 2>&1 </dev/null || status=$?
    case $status in
    0 | 124) return "$status" ;;
    esac
    ! grep -q '^error: could not compile' "$2" || return 2
    return 1
}

suites=()
while IFS= read -r line; do suites+=("$line"); done < <(for name in "${names[@]}"; do suites_of "$name"; done | sort -u)

work_folder mutants
say "without a defect:"
for command in "${suites[@]}"; do
    began=$(seconds_now)
    if run_suite "$command" "$WORK/log"; then
        say "  passes in $(seconds_since "$began") s: $command"
    else
        tail -n 40 "$WORK/log"
        die "fails without any defect: $command"
    fi
done

# ---- one defect after the other --------------------------------------------------------------------

for name in "${names[@]}"; do
    if ! git -C "$TREE" apply "$MUTANTS/$name.patch" 2>"$WORK/log"; then
        fail "$name no longer applies: make it anew for the code as it is"
        sed 's/^/        /' "$WORK/log"
        continue
    fi
    if [ -n "$EVERY" ]; then tried=("${suites[@]}"); else mapfile -t tried < <(suites_of "$name"); fi
    caught=() missed=() broken= began=$(seconds_now)
    for command in "${tried[@]}"; do
        status=0
        run_suite "$command" "$WORK/log" || status=$?
        case $status in
        0) missed+=("$command") ;;
        2) broken=1 && break ;;
        124) caught+=("$command (it did not end)") ;;
        *) caught+=("$command") ;;
        esac
    done
    took=$(seconds_since "$began")
    if [ -n "$broken" ]; then
        fail "$name does not compile: make it anew for the code as it is"
        grep -m 5 -A 5 '^error' "$WORK/log" | sed 's/^/        /'
    elif [ ${#caught[@]} -eq 0 ] || { [ -z "$EVERY" ] && [ ${#missed[@]} -gt 0 ]; }; then
        fail "$name SURVIVED: $(defect "$name")"
        printf '        not noticed by %s\n' "${missed[@]}"
    else
        pass "$name ($(defect "$name")), in $took s"
        printf '          caught by %s\n' "${caught[@]}"
    fi
    git -C "$TREE" checkout -q -- .
    git -C "$TREE" clean -q -f -d
done
summary
