#!/bin/sh
# Builds the libraries that a wheel contains, for any Linux with the glibc named below or a newer one:
#   build_static_libraries.sh DIRECTORY PYTHON
# The compiler is clang as the Python package `ziglang` ships it, which links against a chosen glibc and brings a static
# libc++. The libraries are Debian's source packages of the system's release, so apt has verified them and they have
# its security updates. Left in DIRECTORY:
#   bin/{cc,c++,ar,ranlib}   for cmake/wheel_toolchain.cmake
#   include, lib             static libraries, as position-independent code
#   versions.txt             "name version" of each library, for the wheel's bill of materials
#   licenses                 the notices of each, which a copy of it must carry
set -eu

directory=${1:?usage: build_static_libraries.sh DIRECTORY PYTHON}
python=${2:?usage: build_static_libraries.sh DIRECTORY PYTHON}
glibc=2.28
sources="abseil hiredis nghttp2 openssl prometheus-cpp simdjson zeromq3"
headers="libboost1.81-dev libxxhash-dev" # of these the wheel takes headers alone, as they are installed

mkdir -p "$directory/bin" "$directory/include" "$directory/lib" "$directory/licenses" "$directory/sources"
directory=$(cd "$directory" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
jobs=$(nproc)
launcher=$(command -v ccache || true)

# shellcheck source=/dev/null
release=$(. /etc/os-release && echo "$ID $VERSION_CODENAME")
if [ "$release" != "debian bookworm" ]; then
  echo "build_static_libraries.sh: this system is '$release', and the versions below are of 'debian bookworm';" >&2
  echo "build wheels there (a container of debian:12 will do), or install from source: pip install ." >&2
  exit 1
fi

# The compiler. ccache cannot tell its kind by its name, nor its version by that of this file.
zig=$("$python" -c 'import ziglang, pathlib; print(pathlib.Path(ziglang.__file__).with_name("zig"))')
version=$("$zig" version)
target=$(uname -m)-linux-gnu.$glibc
for tool in cc c++ ar ranlib; do
  flags=
  case $tool in cc | c++) flags=" -target $target -fno-sanitize=undefined" ;; esac
  {
    echo "#!/bin/sh"
    echo "# zig $version"
    echo "export ZIG_GLOBAL_CACHE_DIR='$directory/cache/global' ZIG_LOCAL_CACHE_DIR='$directory/cache/local'"
    echo "exec '$zig' $tool$flags \"\$@\""
  } >"$directory/bin/$tool"
  chmod +x "$directory/bin/$tool"
done
export CCACHE_COMPILERTYPE=clang CCACHE_COMPILERCHECK="string:zig $version $target"
cc=$directory/bin/cc
"$cc" --version | head -n 1

cp "$(dirname "$zig")/lib/libcxx/LICENSE.TXT" "$directory/licenses/libc++"

# Their sources, by a list of package archives of our own.
cd "$directory/sources"
mkdir -p lists/partial
echo "deb-src http://deb.debian.org/debian bookworm main
deb-src http://deb.debian.org/debian bookworm-updates main
deb-src http://deb.debian.org/debian-security bookworm-security main" >apt.list

apt() {
  apt-get -qq -o "Dir::Etc::SourceList=$directory/sources/apt.list" -o Dir::Etc::SourceParts=/dev/null \
    -o "Dir::State::Lists=$directory/sources/lists" -o APT::Sandbox::User=root "$@"
}

apt update
: >../versions.txt.new
for name in $sources; do
  rm -rf "${name:?}" "$name"_*
  if ! apt source --download-only "$name"; then
    echo "build_static_libraries.sh: WARNING: the newest $name cannot be fetched; the one of the release is taken" >&2
    rm -f "$name"_*
    apt source --download-only "$name/bookworm"
  fi
  # apt has compared it with what the archive's signature vouches for.
  dpkg-source --no-check -x "$name"_*.dsc "$name" >/dev/null
  echo "$name $(sed -n 's/^Version: //p' "$name"_*.dsc | head -n 1)" >>../versions.txt.new
  cp "$name/debian/copyright" "../licenses/$name"
done
for name in $headers; do
  echo "$name $(dpkg-query -W -f='${Version}' "$name")" >>../versions.txt.new
  cp "/usr/share/doc/$name/copyright" "../licenses/$name"
done

# with_cmake NAME OPTION...
with_cmake() {
  name=$1
  shift
  echo "building $name"
  {
    cmake -S "$name" -B "$name/build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$root/cmake/wheel_toolchain.cmake" \
      -DROUTER_STATIC_LIBRARIES="$directory" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_STANDARD=20 -DBUILD_SHARED_LIBS=OFF \
      -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_INSTALL_PREFIX="$directory" -DCMAKE_INSTALL_LIBDIR=lib \
      ${launcher:+-DCMAKE_C_COMPILER_LAUNCHER="$launcher" -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher"} "$@"
    cmake --build "$name/build" -j "$jobs" --target install
  } >"$name.log" 2>&1 || failed "$name"
}

failed() {
  tail -n 30 "$1.log" >&2
  echo "build_static_libraries.sh: $1 could not be built; all of its output is in $directory/sources/$1.log" >&2
  exit 1
}

with_cmake abseil -DABSL_PROPAGATE_CXX_STD=ON
# Debian adds libatomic to each target; clang's runtime has those functions.
sed -i -e 's/-Wl,--push-state,--as-needed;//g' -e 's/\\$<LINK_ONLY:-latomic>;//g' -e 's/-latomic;//g' \
  -e 's/-Wl,--pop-state;*//g' "$directory/lib/cmake/absl/abslTargets.cmake"
with_cmake prometheus-cpp -DENABLE_PULL=OFF -DENABLE_PUSH=OFF -DENABLE_TESTING=OFF -DENABLE_COMPRESSION=OFF
with_cmake nghttp2 -DENABLE_LIB_ONLY=ON -DENABLE_STATIC_LIB=ON -DENABLE_SHARED_LIB=OFF -DENABLE_DOC=OFF
with_cmake simdjson -DSIMDJSON_DEVELOPER_MODE=OFF
with_cmake zeromq3 -DBUILD_SHARED=OFF -DBUILD_TESTS=OFF -DWITH_PERF_TOOL=OFF -DWITH_DOC=OFF -DENABLE_CPACK=OFF \
  -DENABLE_CURVE=OFF -DWITH_LIBSODIUM=OFF -DENABLE_WS=OFF -DWITH_OPENPGM=OFF -DWITH_NORM=OFF -DWITH_LIBBSD=OFF

echo "building openssl" # for certificates it looks where distributions keep them; see SSL_CERT_FILE
(
  cd openssl
  # Its Makefile splits CC at blanks, so the tools are found by their names.
  PATH=$directory/bin:$PATH
  CC="${launcher:+ccache }cc" AR=ar RANLIB=ranlib ./Configure "linux-$(uname -m)" no-shared no-tests \
    no-engine no-dso no-legacy no-module --prefix="$directory" --libdir=lib --openssldir=/etc/ssl
  make -j "$jobs" build_generated libcrypto.a libssl.a
  make install_dev
) >openssl.log 2>&1 || failed openssl

echo "building hiredis" # whose own Makefile knows no cross compiler; its parser and what that needs
(
  cd hiredis
  for file in alloc hiredis net read sds; do
    if [ -f "$file.c" ]; then
      ${launcher:+"$launcher"} "$cc" -std=gnu99 -O2 -fPIC -DNDEBUG -Wno-incompatible-function-pointer-types -c "$file.c" -o "$file.o"
    fi
  done
  "$directory/bin/ar" rcs "$directory/lib/libhiredis.a" ./*.o
  mkdir -p "$directory/include/hiredis"
  cp ./*.h "$directory/include/hiredis"
) >hiredis.log 2>&1 || failed hiredis

ln -sfn /usr/include/boost "$directory/include/boost"
cp /usr/include/xxhash.h "$directory/include"
# Debian's Python includes a header from there, and the compiler is not told to look in /usr/include.
system=$(uname -m)-linux-gnu
mkdir -p "$directory/include/$system"
for python_headers in "/usr/include/$system"/python3.*; do
  ln -sfn "$python_headers" "$directory/include/$system/${python_headers##*/}"
done
rm -rf ../cache/local # the compiler's copies of the objects
mv ../versions.txt.new ../versions.txt
