#!/usr/bin/env bash
# Every operator test under a tool of compute-sanitizer, each in a process of its own, as many at a time as there are processors.
# usage: EXEC_TEST_DEVICE=gpu bash bench/sanitize.sh OPS memcheck|racecheck|initcheck [part of a test's name]
#
# Tests that reach no driver have nothing to check: the tool says so. What initcheck says of some is known: where a test wants an
# error, nobody writes the results that it reads, and initcheck does not see what cuBLASLt stores by Hopper's copy engine.
set -u
ops=$1
tool=$2
part=${3:-}
known='_is_an_error$|_are_errors$|_ends_the_run_with_a_sentence$|::many_rows_of_a_large_product$'
[ "$tool" = initcheck ] || known='^$'
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# The outcome of one test: its code and its name.
one() {
    local log=$3/${4//[^a-zA-Z0-9_]/_} code
    compute-sanitizer --tool "$2" --error-exitcode 9 --print-limit 3 "$1" --quiet --exact "$4" >"$log" 2>&1
    code=$?
    grep -q "terminated before first instrumented API call" "$log" && code=none
    echo "$code $4"
}
export -f one

names() { "$ops" --list 2>/dev/null | sed -n 's/: test$//p' | grep -F -- "$part"; }
# Kernels are compiled once, outside the tool, which would watch that too.
names | xargs -P "$(nproc)" -I{} "$ops" --quiet --exact {} >/dev/null 2>&1
names | xargs -P "$(nproc)" -I{} bash -c 'one "$@"' _ "$ops" "$tool" "$logs" {} >"$logs/outcomes"

grep -v -E '^(0|none) ' "$logs/outcomes" | cut -d' ' -f2- | grep -v -E "$known" >"$logs/bad"
echo "$tool: $(grep -c '^0 ' "$logs/outcomes") clean, $(grep -c '^none ' "$logs/outcomes") without a device," \
    "$(grep -v -E '^(0|none) ' "$logs/outcomes" | cut -d' ' -f2- | grep -c -E "$known") known, $(wc -l <"$logs/bad") bad"
while read -r name; do
    echo "== $name" && head -20 "$logs/${name//[^a-zA-Z0-9_]/_}"
done <"$logs/bad"
[ -s "$logs/outcomes" ] && [ ! -s "$logs/bad" ]
