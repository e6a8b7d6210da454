#!/bin/sh
# Builds a self-contained wheel for each Python given, into dist/, and shows what it needs and how large it is:
#   build_wheels.sh PYTHON...
# scripts/build_static_libraries.sh comes before it. The core's sources are compiled once: ccache, where it is installed,
# has them for the second Python.
set -eu

if [ $# -eq 0 ]; then
  echo "build_wheels.sh: no Python is named; with \`make wheels\`, none from 3.10 to 3.14 with its headers was found" >&2
  exit 2
fi

cd "$(dirname "$0")/.."
static=$PWD/build/static
launcher=$(command -v ccache || true)
export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR="$PWD" CCACHE_COMPILERTYPE=clang
CCACHE_COMPILERCHECK="string:$("$static/bin/cc" --version | head -n 1) $(sed -n 's/.*-target \([^ ]*\).*/\1/p' "$static/bin/cc")"
export CCACHE_COMPILERCHECK
# scikit-build-core splits it as a shell would.
# shellcheck disable=SC2089
CMAKE_ARGS="'-DCMAKE_TOOLCHAIN_FILE=$PWD/cmake/wheel_toolchain.cmake' -DROUTER_WARNINGS_AS_ERRORS=ON"
if [ -n "$launcher" ]; then
  CMAKE_ARGS="$CMAKE_ARGS '-DCMAKE_C_COMPILER_LAUNCHER=$launcher' '-DCMAKE_CXX_COMPILER_LAUNCHER=$launcher'"
fi
# shellcheck disable=SC2090
export CMAKE_ARGS
export CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"

rm -rf build/wheelhouse dist
for python in "$@"; do
  tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
  environment=build/wheels/$tag
  test -x "$environment/bin/python" || "$python" -m venv "$environment"
  "$environment/bin/python" -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
  "$environment/bin/python" -m pip install --quiet --group build --group wheel
  rm -rf "build/wheelhouse/$tag"
  "$environment/bin/python" -m build --wheel --no-isolation --outdir "build/wheelhouse/$tag"
  # Nothing is left to bundle: this finds the oldest glibc that it runs with, and names it in the file's name.
  PATH=$PWD/$environment/bin:$PATH "$environment/bin/python" -m auditwheel repair --wheel-dir dist "build/wheelhouse/$tag"/*.whl
  rm -rf "$static/cache/local" # the compiler's copies of what ccache or the build has
done

for wheel in dist/*.whl; do
  "$environment/bin/python" -m auditwheel show "$wheel"
  printf '%s: %s bytes\n' "$wheel" "$(stat -c %s "$wheel")"
done
