#!/usr/bin/env bash
# Runs every operator test under a compute-sanitizer tool, each in its own process, with one process per processor.
# usage: EXEC_TEST_DEVICE=gpu bash bench/sanitize.sh OPS memcheck|racecheck|initcheck [part of a test's name]
#
# Tests that never call the driver have nothing to check, and the tool says so. Some initcheck reports are expected:
# tests that provoke an error read results that were never written, and initcheck does not see what cuBLASLt stores
# through Hopper's copy engine.
set -u
ops=$1
tool=$2
part=${3:-}
known='_is_an_error$|_are_errors$|_fails_the_run_with_a_readable_error$|::many_rows_of_a_large_product$'
[ "$tool" = initcheck ] || known='^$'
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# The result of one test: its exit code and its name.
one() {
    local log=$3/${4//[^a-zA-Z0-9_]/_} code
    compute-sanitizer --tool "$2" --error-exitcode 9 --print-limit 3 "$1" --quiet --exact "$4" >"$log" 2>&1
    code=$?
    grep -q "terminated before first instrumented API call" "$log" && code=none
    echo "$code $4"
}
export -f one

names() { "$ops" --list 2>/dev/null | sed -n 's/: test$//p' | grep -F -- "$part"; }
# Compile kernels once, outside the tool, which would instrument that too.
names | xargs -P "$(nproc)" -I{} "$ops" --quiet --exact {} >/dev/null 2>&1
names | xargs -P "$(nproc)" -I{} bash -c 'one "$@"' _ "$ops" "$tool" "$logs" {} >"$logs/outcomes"

grep -v -E '^(0|none) ' "$logs/outcomes" | cut -d' ' -f2- | grep -v -E "$known" >"$logs/bad"
echo "$tool: $(grep -c '^0 ' "$logs/outcomes") clean, $(grep -c '^none ' "$logs/outcomes") without a device," \
    "$(grep -v -E '^(0|none) ' "$logs/outcomes" | cut -d' ' -f2- | grep -c -E "$known") known, $(wc -l <"$logs/bad") bad"
while read -r name; do
    echo "== $name" && head -20 "$logs/${name//[^a-zA-Z0-9_]/_}"
done <"$logs/bad"
[ -s "$logs/outcomes" ] && [ ! -s "$logs/bad" ]
