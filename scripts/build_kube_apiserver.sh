#!/bin/sh
# Builds the API server of Kubernetes with Go, for `make test-kubernetes`: build_kube_apiserver.sh [DIRECTORY]
# Left in DIRECTORY (~/.cache/vllm-router unless one is given): kube-apiserver-VERSION, which later runs find there.
# Everything comes from the Go module proxy, checked against Go's checksum database.
set -eu

version=1.34.4

directory=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/vllm-router}
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
binary=$directory/kube-apiserver-$version
if [ -x "$binary" ]; then
  exit 0
fi
if ! command -v go >/dev/null 2>&1; then
  echo "build_kube_apiserver.sh: there is no go on PATH, which builds kube-apiserver $version; install Go 1.24 or newer" >&2
  exit 1
fi

module=$(mktemp -d "$directory/building.XXXXXX")
trap 'rm -rf "$module"' EXIT
trap 'exit 1' HUP INT TERM
cd "$module"
export CGO_ENABLED=0 GOFLAGS="-mod=mod -buildvcs=false" GOWORK=off

# Kubernetes replaces its staging modules by directories of its repository, which its module does not contain. They are
# published too, by the minor version. A replacement only counts in the main module, so there is one around it.
go mod download "k8s.io/kubernetes@v$version"
downloaded=$(go env GOMODCACHE)/cache/download/k8s.io/kubernetes/@v/v$version.mod
{
  echo "module kube-apiserver"
  echo "require k8s.io/kubernetes v$version"
  sed -n "s|^[[:space:]]*\([^ ]*\) => \./staging/.*|replace \1 => \1 v0.${version#1.}|p" "$downloaded"
} >go.mod

# Without these the server calls itself v0.0.0-master.
go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v$version \
  -X k8s.io/client-go/pkg/version.gitVersion=v$version" -o kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
mv kube-apiserver "$binary" # within one file system, so that no other run finds half of it
