#!/bin/sh
# Runs a command with a sanitizer under it: sanitized.sh asan|tsan COMMAND...
# Python itself is not instrumented, so the runtime is preloaded; what Python leaks by design is suppressed.
set -eu

preset=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
library() { "${CXX:-g++}" -print-file-name="$1"; }

# The child's environment only: the shell and make are none of the sanitizer's business.
case "$preset" in
  asan)
    # libstdc++ comes along because ASan looks for __cxa_throw when it starts, before the extension brings it.
    set -- LD_PRELOAD="$(library libasan.so) $(library libstdc++.so)" \
      ASAN_OPTIONS="detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1" \
      LSAN_OPTIONS="suppressions=$root/tests/sanitizers/lsan.supp:print_suppressions=0" \
      UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1" PYTHONMALLOC=malloc "$@" ;;
  tsan)
    set -- LD_PRELOAD="$(library libtsan.so) $(library libstdc++.so)" \
      TSAN_OPTIONS="suppressions=$root/tests/sanitizers/tsan.supp:halt_on_error=1:second_deadlock_stack=1" "$@"
    # GCC 12's TSan knows fewer memory layouts than newer kernels make; without randomisation all is where it looks.
    if setarch "$(uname -m)" -R true 2>/dev/null; then set -- setarch "$(uname -m)" -R env "$@"; fi ;;
  *) echo "sanitized.sh: no sanitizer '$preset'; there are: asan tsan" >&2; exit 2 ;;
esac

exec env PYTHONPATH="$root/build/$preset/python" "$@"
