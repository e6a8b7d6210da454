#!/bin/sh
# The last lines of .ci/run as a page of GitHub: what was FLAKY, FOUND or NOT RUN, and the seconds of each part.
set -eu

block() {
  printf '\n```\n'
  cat
  printf '```\n'
}

echo '### .ci/run'
if [ -s build/ci/notes ]; then
  sort -u build/ci/notes | block
elif [ -e build/ci/table ]; then
  printf '\nEverything ran; nothing was flaky.\n'
else
  printf '\nIt did not begin.\n'
fi
[ ! -s build/ci/table ] || block <build/ci/table
