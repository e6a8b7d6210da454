#!/bin/sh
# Builds Helm with Go: install_helm.sh [DIRECTORY], build/tools unless one is given. Takes minutes the first time.
set -eu

version=v3.22.0

tools=${1:-$(dirname "$0")/../build/tools}
mkdir -p "$tools"
tools=$(cd "$tools" && pwd)
# A Helm that was built by `go install` does not know its version, so that stands beside it.
if [ -x "$tools/helm" ] && [ "$(cat "$tools/helm.version" 2>/dev/null)" = "$version" ]; then
  exit 0
fi
if ! command -v go >/dev/null 2>&1; then
  echo "install_helm.sh: there is no go on PATH, which builds Helm $version; install Go 1.26 or newer, or set HELM to a helm" >&2
  exit 1
fi
GOBIN=$tools go install "helm.sh/helm/v3/cmd/helm@$version"
echo "$version" >"$tools/helm.version"
