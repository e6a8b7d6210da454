#!/bin/sh
# Installs system packages on Debian and Ubuntu: install_deps.sh GROUP...
# Groups: build lint fuzz bench browser kubernetes wheel release ci. Elsewhere it says what to install, and the build goes on with what is there.
set -eu

packages_of() {
  case "$1" in
    build) echo "cmake g++ git make ninja-build python3-dev python3-venv \
      libabsl-dev $(boost) libhiredis-dev libnghttp2-dev libsimdjson-dev libssl-dev libxxhash-dev libzmq3-dev prometheus-cpp-dev" ;;
    lint) echo "clang-format-14 clang-tidy-14" ;;
    fuzz) echo "clang-14 libclang-rt-14-dev" ;;
    bench) echo "haproxy libbenchmark-dev nginx-light wrk" ;;
    browser) echo "chromium chromium-driver" ;;
    kubernetes) echo "etcd-server" ;;
    wheel) echo "dpkg-dev" ;; # the rest of what scripts/build_static_libraries.sh runs is in `build`
    release) echo "debootstrap fish mandoc prometheus systemd zsh" ;;
    ci) echo "ccache dnsmasq-base nghttp2-client redis-server" ;;
    *) echo "install_deps.sh: no group '$1'; there are: build lint fuzz bench browser kubernetes wheel release ci" >&2; exit 2 ;;
  esac
}

# Debian 12's default Boost is older than the 1.81 that it also has; later systems have a new enough default.
boost() {
  if apt-cache show libboost1.81-dev >/dev/null 2>&1; then echo libboost1.81-dev; else echo libboost-dev; fi
}

wanted=""
for group in "$@"; do
  names=$(packages_of "$group")
  wanted="$wanted $names"
done
# shellcheck disable=SC2086  # split into words on purpose
set -- $wanted

if ! command -v apt-get >/dev/null 2>&1; then
  echo "This system has no apt-get, so install these yourself, by the names that Debian gives them:"
  echo "  $*"
  exit 0
fi

missing=""
for package in "$@"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=""
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    echo "These packages are missing and need root, but there is no sudo. As root, run:" >&2
    echo "  apt-get install --no-install-recommends$missing" >&2
    exit 1
  fi
  as_root="sudo"
fi
echo "Installing:$missing"
$as_root apt-get update -qq
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
