#!/bin/sh
# Runs each fuzz target over its corpus for a while: fuzz.sh DIRECTORY SECONDS
# What it finds new goes to build/fuzz/corpus/<target>; a crash leaves its input there and ends the run.
set -eu

for target in "$1"/fuzz_*; do
  [ -x "$target" ] && [ -f "$target" ] || continue
  name=${target##*/fuzz_}
  found=build/fuzz/corpus/$name
  mkdir -p "$found"
  echo "== $name, $2 s"
  "$target" -max_total_time="$2" -dict=tests/fuzz/http.dict -artifact_prefix="$found/" -print_final_stats=1 "$found" "tests/fuzz/corpus/$name"
done
