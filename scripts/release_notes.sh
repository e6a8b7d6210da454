#!/bin/sh
# Prints what CHANGELOG.md says of a version, and fails if that is nothing: release_notes.sh VERSION
set -eu

cd "$(dirname "$0")/.."
notes=$(awk -v version="${1:?usage: release_notes.sh VERSION}" '$1 == "##" { inside = $2 == version; next } inside' CHANGELOG.md)
if [ -z "$notes" ]; then
  echo "release_notes.sh: CHANGELOG.md has no text below '## $1'; move what is unreleased there" >&2
  exit 1
fi
echo "$notes"
