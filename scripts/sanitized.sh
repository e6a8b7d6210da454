#!/bin/sh
# Runs a command with a sanitizer under it: sanitized.sh asan|tsan COMMAND...
# Python itself is not instrumented, so the runtime is preloaded; what Python leaks by design is suppressed.
# Reports go to files, because pytest would swallow what a dying process writes to stderr; they are printed at the end.
# UBSan's go to stderr all the same: its call to name a file reaches ASan's runtime, which has a function of the same name.
# So pytest captures what Python writes alone, and the reports are taken out of stderr.
# Ends with status 77, and a last line that says why, where the sanitizer cannot start. With CI_NOTES=FILE, what a reader
# of a long log must not miss is also written there.
set -u

preset=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
reports=$root/build/$preset/reports
cache=$root/build/$preset/pytest_cache # what failed in this run alone, whatever ran before
errors=$root/build/$preset/pytest_stderr
rm -rf "$reports" "$cache" "$errors"
mkdir -p "$reports"
library() { "${CXX:-g++}" -print-file-name="$1"; }

note() {
  echo "sanitized.sh: $*" >&2
  [ -z "${CI_NOTES-}" ] || echo "$*" >>"$CI_NOTES"
}

# A container may forbid what a sanitizer needs of the kernel; then it says so on a program that does nothing.
works() { env "$@" true >/dev/null 2>&1; }

# GCC 12's runtimes know fewer memory layouts than newer kernels make; without randomisation all is where they look.
# `first` becomes what to put before `env`, which may be nothing.
find_first() {
  for first in "setarch $(uname -m) -R" ""; do
    # shellcheck disable=SC2086
    if $first env "$@" true >/dev/null 2>&1; then return; fi
  done
  echo "sanitized.sh: $preset finds no room for its memory; allow personality() here, or lower vm.mmap_rnd_bits" >&2
  exit 77
}

# The command's environment only: the shell is none of the sanitizer's business.
case "$preset" in
  asan)
    find_first LD_PRELOAD="$(library libasan.so)" ASAN_OPTIONS=detect_leaks=0
    leaks=1
    works LD_PRELOAD="$(library libasan.so)" ASAN_OPTIONS=detect_leaks=1 || {
      leaks=0
      note "NOT RUN: search for leaks (LeakSanitizer may not trace processes here: SYS_PTRACE)"
    }
    # intercept_tls_get_addr=0: GCC 12's runtime takes every thread-local block that begins 16 bytes into a page for one that
    # an old glibc made, and two counters in front of it for its place and size; LeakSanitizer's tracer dies where they point.
    # The blocks are searched all the same, as memory that malloc() gave.
    # libstdc++ comes along because ASan looks for __cxa_throw when it starts, before the extension brings it.
    set -- LD_PRELOAD="$(library libasan.so) $(library libstdc++.so)" \
      ASAN_OPTIONS="log_path=$reports/asan:detect_leaks=$leaks:detect_stack_use_after_return=1:strict_string_checks=1:intercept_tls_get_addr=0" \
      LSAN_OPTIONS="suppressions=$root/tests/sanitizers/lsan.supp:print_suppressions=0" \
      UBSAN_OPTIONS="log_path=$reports/ubsan:print_stacktrace=1:halt_on_error=1" \
      PYTHONMALLOC=malloc "$@" ;;
  tsan)
    find_first LD_PRELOAD="$(library libtsan.so)"
    set -- LD_PRELOAD="$(library libtsan.so) $(library libstdc++.so)" \
      TSAN_OPTIONS="log_path=$reports/tsan:suppressions=$root/tests/sanitizers/tsan.supp:second_deadlock_stack=1" \
      "$@" ;;
  *) echo "sanitized.sh: no sanitizer '$preset'; there are: asan tsan" >&2; exit 2 ;;
esac

found() {
  [ ! -e "$errors" ] || grep -A 30 "runtime error: " "$errors" >"$reports/ubsan" || rm "$reports/ubsan"
  [ -n "$(ls "$reports")" ]
}

failed() { sed -n 's/^ *"\(.*\)": true,*$/\1/p' "$cache/v/cache/lastfailed"; }

# shellcheck disable=SC2086
run() {
  case "$*" in
    *pytest*) $first env PYTHONPATH="$root/build/$preset/python" "$@" 2>>"$errors" ;;
    *) $first env PYTHONPATH="$root/build/$preset/python" "$@" ;;
  esac
}

case "$*" in *pytest*) set -- "$@" --capture=sys -o "cache_dir=$cache" ;; esac
run "$@"
code=$?

# Under a sanitizer everything is many times slower, and tests that share the machine may run out of time. Tests that
# failed without a report run once more, alone; a report stands.
case "$*" in
  *pytest*)
    if [ $code -eq 1 ] && ! found; then
      names=$(failed)
      echo "sanitized.sh: no report; once more, one at a time, what failed" >&2
      run "$@" -n 0 --last-failed --last-failed-no-failures none
      code=$?
      if [ $code -eq 0 ] && ! found; then
        echo "$names" | while read -r test; do note "FLAKY: $test (failed under $preset among others, passed alone)"; done
      else
        failed | while read -r test; do note "FAILED: $test (under $preset, alone too)"; done
      fi
    fi ;;
esac

for report in "$reports"/*; do
  [ -e "$report" ] || continue
  cat "$report" >&2
  grep -hm1 -E "SUMMARY: |runtime error: " "$report" | while read -r line; do note "FAILED: $line"; done
  code=1
done
exit $code
