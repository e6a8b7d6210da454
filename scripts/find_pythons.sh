#!/bin/sh
# Prints the path of a CPython of each version from 3.10 to 3.14 that is on PATH, or that uv or pyenv has; of theirs,
# the newest.
set -eu

for version in 3.10 3.11 3.12 3.13 3.14; do
  {
    command -v "python$version" || true
    printf '%s\n' "$HOME/.local/share/uv/python/cpython-$version".*/bin/"python$version" \
      "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/"python$version" | sort -rV
  } | while IFS= read -r python; do
    # pyenv's own command for a version that it was not told to use fails, and Debian's may lack the headers.
    if "$python" -c 'import pathlib, sysconfig, venv; assert pathlib.Path(sysconfig.get_path("include"), "Python.h").exists()' </dev/null 2>/dev/null; then
      echo "$python"
      break
    fi
  done
done
