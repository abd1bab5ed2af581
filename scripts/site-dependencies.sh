#!/bin/bash
# Builds the libraries that axonn needs and that a cluster lacks into a folder, without root:
#
#   site-dependencies.sh PREFIX [--archives FOLDER] [--required] [--jobs N] [LIBRARY...]
#   site-dependencies.sh --download FOLDER [LIBRARY...]
#   site-dependencies.sh --list
#
# The first form builds each library that axonn's CMake finds neither in PREFIX nor in the system,
# with the compilers CC and CXX (gcc, g++). The archives of the sources are downloaded by curl, or
# are in FOLDER: then nothing is downloaded. The second form fills such a folder, on a machine with
# a network; the third prints the archives with their addresses and SHA-256. An archive with another
# SHA-256 is refused.
#
# --required leaves out what axonn can be built without: ICU, SentencePiece, Snappy, LZ4, Brotli and
# Boost's headers. LIBRARY, one of --list, stands for this library alone, and is built although the
# system has it. A run that was interrupted is continued by the same command.
#
# Needs CMake 3.25, make and a C++ compiler. MPI, CUDA, ROCm and their libraries come from modules.
set -euo pipefail

declare -A version variable url sha256 other_url other_sha256
names=()
optional=" icu sentencepiece snappy lz4 brotli boost "

# library NAME VERSION VARIABLE URL SHA256: VARIABLE of CMake's cache says where axonn's CMake finds
# the library.
library() {
  names+=("$1")
  version[$1]=$2 variable[$1]=$3 url[$1]=$4 sha256[$1]=$5
}
# also NAME URL SHA256: another archive of the same sources, which Debian has packed anew.
also() {
  other_url[$1]=$2 other_sha256[$1]=$3
}
github=https://github.com
debian=https://deb.debian.org/debian/pool/main
library onednn 3.7.1 AXONN_DNNL $github/oneapi-src/oneDNN/archive/v3.7.1.tar.gz \
  580f56abe12f2bd9d628a47586b00c516d410b086d7227a800aedc4891f4e93a
library fmt 10.1.1 fmt_DIR $github/fmtlib/fmt/archive/10.1.1.tar.gz \
  78b8c0a72b1c35e4443a7e308df52498252d1cefc2b08c9a97bc9ee6cfe61f8b
library nlohmann_json 3.11.3 nlohmann_json_DIR $github/nlohmann/json/archive/v3.11.3.tar.gz \
  0d8ef5af7f9794e3263480193c491549b2ba6cc74bb018906202ada498a79406
library tomlplusplus 3.4.0 tomlplusplus_DIR $github/marzer/tomlplusplus/archive/v3.4.0.tar.gz \
  8517f65938a4faae9ccf8ebb36631a38c1cadfb5efa85d9a72e15b9e97d25155
library cli11 2.4.1 CLI11_DIR $github/CLIUtils/CLI11/archive/v2.4.1.tar.gz \
  73b7ec52261ce8fe980a29df6b4ceb66243bb0b779451dbd3d014cfec9fdbb58
library pcre2 10.42 AXONN_PCRE2 \
  $github/PCRE2Project/pcre2/releases/download/pcre2-10.42/pcre2-10.42.tar.gz \
  c33b418e3b936ee3153de2c61cc638e7e4fe3156022a5c77d0711bcbb9d64f1f
library zlib 1.3.1 AXONN_ZLIB $github/madler/zlib/archive/v1.3.1.tar.gz \
  17e88863f3600672ab49182f217281b6fc4d3c762bde361935e436a95214d05c
library zstd 1.5.6 AXONN_ZSTD $github/facebook/zstd/archive/v1.5.6.tar.gz \
  30f35f71c1203369dc979ecde0400ffea93c27391bfd2ac5a9715d2173d92ff7
library bzip2 1.0.8 AXONN_BZIP2 https://sourceware.org/pub/bzip2/bzip2-1.0.8.tar.gz \
  ab5a03176ee106d3f0fa90e381da478ddae405918153cca248e682cd0c4a2269
library xz 5.8.1 AXONN_XZ $github/tukaani-project/xz/releases/download/v5.8.1/xz-5.8.1.tar.xz \
  0b54f79df85912504de0b14aec7971e3f964491af1812d83447005807513cd9e
library xxhash 0.8.3 AXONN_XXHASH $github/Cyan4973/xxHash/archive/v0.8.3.tar.gz \
  aae608dfe8213dfd05d909a57718ef82f30722c392344583d3f39050c7f29a80
library icu 76.1 AXONN_ICU_LIBRARY \
  $github/unicode-org/icu/releases/download/release-76-1/icu4c-76_1-src.tgz \
  dfacb46bfe4747410472ce3e1144bf28a102feeaa4e3875bac9b4c6cf30f4f3e
library sentencepiece 0.1.97 AXONN_SENTENCEPIECE_LIBRARY \
  $github/google/sentencepiece/archive/v0.1.97.tar.gz \
  41c3a07f315e3ac87605460c8bb8d739955bc8e7f478caec4017ef9b7d78669b
also sentencepiece $debian/s/sentencepiece/sentencepiece_0.1.97.orig.tar.gz \
  56430381f45dc6debfd2e0cbde4f039f9499c49ca825af184b0cbf318c17a18f
library snappy 1.2.2 AXONN_SNAPPY $github/google/snappy/archive/1.2.2.tar.gz \
  90f74bc1fbf78a6c56b3c4a082a05103b3a56bb17bca1a27e052ea11723292dc
library lz4 1.10.0 AXONN_LZ4 $github/lz4/lz4/archive/v1.10.0.tar.gz \
  537512904744b35e232912055ccf8ec66d768639ff3abe5788d90d792ec5f48b
library brotli 1.0.9 AXONN_BROTLI $github/google/brotli/archive/v1.0.9.tar.gz \
  f9e8d81d0405ba66d181529af42a3354f838c939095ff99930da6aa9cdf6fe46
library boost 1.83.0 AXONN_BOOST \
  https://archives.boost.io/release/1.83.0/source/boost_1_83_0.tar.bz2 \
  6478edfe2f3305127cffe8caf73ea0176c53769f4bf1585be237eb30798c3b8e
also boost $debian/b/boost1.83/boost1.83_1.83.0.orig.tar.xz \
  404df4b4072fc7f2d4483d4fc2d61ff6f554dd80c9a812652684d5952e881c91

fail() {
  printf 'site-dependencies.sh: %s\n' "$@" >&2
  exit 1
}
usage() {
  [[ -z ${1:-} ]] || echo "site-dependencies.sh: $1" >&2
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0" >&2
  exit 2
}

# file_of NAME: the name of its archive. GitHub's names do not have the library's.
file_of() {
  local ending=.tar.${url[$1]##*.}
  [[ $ending != .tar.tgz ]] || ending=.tar.gz
  echo "$1-${version[$1]}$ending"
}
is_good() {
  [[ -f $1 && $(sha256sum <"$1") == "$2  -" ]]
}

# archive_in FOLDER NAME: prints the path of the library's archive. Fails, with the reason, if there
# is none, or another one.
archive_in() {
  local path expected=${sha256[$2]} other
  path=$1/$(file_of "$2")
  if [[ ! -f $path && -n ${other_url[$2]:-} ]]; then
    other=$1/${other_url[$2]##*/}
    [[ ! -f $other ]] || path=$other expected=${other_sha256[$2]}
  fi
  if [[ ! -f $path ]]; then
    echo "$path is missing" >&2
  elif is_good "$path" "$expected"; then
    echo "$path"
    return
  else
    echo "$path is another archive: its SHA-256 is not $expected" >&2
  fi
  return 1
}

# download FOLDER NAME: from the other address if the first one fails.
download() {
  local path
  ! archive_in "$1" "$2" >/dev/null 2>&1 || return 0
  command -v curl >/dev/null || fail "downloads need curl; --list prints the addresses"
  path=$1/$(file_of "$2")
  if fetch "${url[$2]}" "$path" "${sha256[$2]}"; then return; fi
  if [[ -n ${other_url[$2]:-} ]]; then
    path=$1/${other_url[$2]##*/}
    if fetch "${other_url[$2]}" "$path" "${other_sha256[$2]}"; then return; fi
  fi
  return 1
}
fetch() {
  rm -f "$2"
  if ! curl -fsSL --retry 2 --connect-timeout 20 -o "$2.part" "$1"; then
    echo "$1 was not downloaded" >&2
    return 1
  fi
  mv "$2.part" "$2"
  is_good "$2" "$3" && return
  echo "$1 is another archive: its SHA-256 is not $3" >&2
  return 1
}

prefix='' archives='' downloads='' required=0 chosen=()
jobs=$(($(nproc) < 16 ? $(nproc) : 16))
while (($#)); do
  case $1 in
    --list)
      for name in "${names[@]}"; do
        echo "$(file_of "$name") ${url[$name]} ${sha256[$name]}"
        [[ -z ${other_url[$name]:-} ]] ||
          echo "  or ${other_url[$name]##*/} ${other_url[$name]} ${other_sha256[$name]}"
      done
      exit
      ;;
    --required) required=1 ;;
    --archives | --download | --jobs)
      (($# > 1)) || usage "$1 needs a value"
      case $1 in
        --archives) archives=$2 ;;
        --download) downloads=$2 ;;
        --jobs) jobs=$2 ;;
      esac
      shift
      ;;
    -*) usage "'$1' is not an option" ;;
    *)
      if [[ -z $prefix && -z $downloads ]]; then
        prefix=$1
      elif [[ -n ${url[$1]:-} ]]; then
        chosen+=("$1")
      else
        usage "'$1' is not a library: ${names[*]}"
      fi
      ;;
  esac
  shift
done
[[ -n $prefix$downloads && (-z $prefix || -z $downloads) ]] || usage
[[ $jobs =~ ^[1-9][0-9]*$ ]] || usage "--jobs takes a number, not '$jobs'"

if [[ -n $downloads ]]; then
  mkdir -p "$downloads"
  ((${#chosen[@]})) || chosen=("${names[@]}")
  failed=()
  for name in "${chosen[@]}"; do download "$downloads" "$name" || failed+=("$name"); done
  ((!${#failed[@]})) || fail "not downloaded: ${failed[*]}; the same command tries these again"
  du -sh "$downloads"
  exit
fi

[[ -z $archives || -d $archives ]] || fail "$archives is not a folder; --download makes one"
for tool in cmake make "${CC:-gcc}" "${CXX:-g++}"; do
  command -v "${tool%% *}" >/dev/null ||
    fail "${tool%% *} was not found: load its module, or set CC and CXX"
done
export CC=${CC:-gcc} CXX=${CXX:-g++}
source_tree=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$prefix/log"
prefix=$(cd "$prefix" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# find_libraries: configures axonn without GPUs, MPI and tests. Its cache then says where each
# library is; that some are missing is no error here.
find_libraries() {
  rm -rf "$work/find"
  cmake -S "$source_tree" -B "$work/find" -DCMAKE_PREFIX_PATH="$prefix" -DAXONN_CUDA=OFF \
    -DAXONN_HIP=OFF -DAXONN_MPI=OFF -DAXONN_BLAS=OFF -DAXONN_MARCH=default \
    >"$prefix/log/find.log" 2>&1 || true
  grep -q "^AXONN_BOOST:" "$work/find/CMakeCache.txt" 2>/dev/null ||
    fail "CMake does not get as far as looking for libraries: $prefix/log/find.log" \
      "$(grep -A 5 'CMake Error' "$prefix/log/find.log" | head -n 12)"
}
# path_of NAME: where CMake has found it; empty if it has not.
path_of() {
  local path
  path=$(sed -n "s/^${variable[$1]}:[A-Z]*=//p" "$work/find/CMakeCache.txt")
  [[ $path == *NOTFOUND ]] || echo "$path"
}

echo "looking for libraries with $CXX"
find_libraries
missing=()
for name in "${names[@]}"; do
  if ((${#chosen[@]})) && [[ " ${chosen[*]} " != *" $name "* ]]; then continue; fi
  path=$(path_of "$name")
  if [[ -n $path ]] && { ((!${#chosen[@]})) || [[ $path == "$prefix"/* ]]; }; then
    echo "found    $name: $path"
  elif ((required)) && [[ $optional == *" $name "* ]]; then
    echo "left out $name"
  else
    missing+=("$name")
  fi
done

# All archives are checked before the first library is built.
problems=()
if [[ -n $archives ]]; then
  for name in "${missing[@]}"; do
    said=$(archive_in "$archives" "$name" 2>&1 >/dev/null) || problems+=("$said")
  done
  ((!${#problems[@]})) || fail "${problems[@]}" \
    "on a machine with a network: scripts/site-dependencies.sh --download FOLDER ${missing[*]}"
fi

with_cmake() {  # SUBFOLDER OPTION...
  local folder=$1
  shift
  # What a library of the prefix needs lies beside it.
  # shellcheck disable=SC2016
  cmake -S "$folder" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" \
    -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_INSTALL_RPATH='$ORIGIN' -DBUILD_SHARED_LIBS=ON \
    -DCMAKE_POLICY_VERSION_MINIMUM=3.5 -Wno-dev "$@"
  cmake --build "$work/build" --parallel "$jobs"
  cmake --install "$work/build"
}

# Each runs in the folder of the unpacked sources.
build_onednn() {  # axonn has matrix products and copies computed, nothing else
  with_cmake . -DONEDNN_BUILD_DOC=OFF -DONEDNN_BUILD_EXAMPLES=OFF -DONEDNN_BUILD_TESTS=OFF \
    -DONEDNN_BUILD_GRAPH=OFF -DONEDNN_CPU_RUNTIME=OMP -DONEDNN_GPU_RUNTIME=NONE \
    "-DONEDNN_ENABLE_PRIMITIVE=MATMUL;REORDER"
}
build_fmt() { with_cmake . -DFMT_DOC=OFF -DFMT_TEST=OFF; }
build_nlohmann_json() { with_cmake . -DJSON_BuildTests=OFF; }
build_tomlplusplus() { with_cmake .; }
build_cli11() { with_cmake . -DCLI11_BUILD_TESTS=OFF -DCLI11_BUILD_EXAMPLES=OFF; }
build_pcre2() {
  with_cmake . -DPCRE2_BUILD_TESTS=OFF -DPCRE2_BUILD_PCRE2GREP=OFF -DPCRE2_SUPPORT_JIT=ON
}
build_zlib() { with_cmake .; }
build_zstd() {
  with_cmake build/cmake -DZSTD_BUILD_PROGRAMS=OFF -DZSTD_BUILD_TESTS=OFF -DZSTD_BUILD_STATIC=OFF
}
build_bzip2() {
  make -f Makefile-libbz2_so CC="$CC"
  mkdir -p "$prefix/include" "$prefix/lib"
  cp bzlib.h "$prefix/include"
  cp "libbz2.so.${version[bzip2]}" "$prefix/lib"
  ln -sf "libbz2.so.${version[bzip2]}" "$prefix/lib/libbz2.so.1.0"
  ln -sf libbz2.so.1.0 "$prefix/lib/libbz2.so"
}
build_xz() {
  with_cmake . -DXZ_NLS=OFF -DXZ_DOC=OFF -DXZ_TOOL_XZ=OFF -DXZ_TOOL_XZDEC=OFF \
    -DXZ_TOOL_LZMADEC=OFF -DXZ_TOOL_LZMAINFO=OFF -DXZ_TOOL_SCRIPTS=OFF -DBUILD_TESTING=OFF
}
build_xxhash() {  # axonn compiles it from its headers
  mkdir -p "$prefix/include"
  cp xxhash.h "$prefix/include"
}
build_icu() {
  cd source
  ./configure --prefix="$prefix" --libdir="$prefix/lib" --enable-rpath --disable-tests \
    --disable-samples --disable-extras --disable-icuio
  make -j "$jobs"
  make install
}
build_sentencepiece() {  # its headers rely on others to include cstdint
  with_cmake . -DSPM_ENABLE_TCMALLOC=OFF "-DCMAKE_CXX_FLAGS=-include cstdint"
}
build_snappy() { with_cmake . -DSNAPPY_BUILD_TESTS=OFF -DSNAPPY_BUILD_BENCHMARKS=OFF; }
build_lz4() { with_cmake build/cmake -DLZ4_BUILD_CLI=OFF -DLZ4_BUILD_LEGACY_LZ4C=OFF; }
build_brotli() { with_cmake . -DBROTLI_DISABLE_TESTS=ON; }
build_boost() {  # headers, which Debian's archive has in a folder for each part of Boost
  local folder
  mkdir -p "$prefix/include"
  rm -rf "$prefix/include/boost.part"
  if [[ -d boost ]]; then
    cp -r boost "$prefix/include/boost.part"
  else
    for folder in libs/*/include/boost libs/*/*/include/boost; do
      [[ ! -d $folder ]] || cp -r "$folder/." "$prefix/include/boost.part"
    done
  fi
  mv -T "$prefix/include/boost.part" "$prefix/include/boost"
}

# unpack NAME: prints the folder of its sources.
unpack() {
  local from=$archives
  if [[ -z $from ]]; then
    from=$work/archives
    mkdir -p "$from"
    if ! download "$from" "$1" >&2; then
      echo "without a network: --archives FOLDER, which --download FOLDER fills elsewhere" >&2
      return 1
    fi
  fi
  from=$(cd "$from" && pwd)
  from=$(archive_in "$from" "$1") || return
  rm -rf "$work/build" "$work/source"
  mkdir "$work/source"
  (cd "$work/source" && cmake -E tar xf "$from") || return
  echo "$work"/source/*
}

for name in "${missing[@]}"; do
  begin=$SECONDS
  log=$prefix/log/$name.log
  printf 'building %s %s' "$name" "${version[$name]}"
  # Outside of a condition, where the first command that fails would not end the shell.
  set +e
  (
    exec </dev/null >"$log" 2>&1
    set -e
    folder=$(unpack "$name")
    cd "$folder"
    set -x
    "build_$name"
  )
  status=$?
  set -e
  if ((status)); then
    echo
    tail -n 15 "$log" >&2
    fail "$name was not built: $log" "the same command continues here"
  fi
  rm -rf "$work/archives" "$work/build" "$work/source"
  echo ": $((SECONDS - begin)) s"
done

if ((${#missing[@]})); then
  find_libraries
  for name in "${missing[@]}"; do
    [[ $(path_of "$name") == "$prefix"/* ]] ||
      fail "$name was built, but axonn's CMake does not find it in $prefix: $prefix/log/find.log"
  done
fi
echo "all found; configure axonn with -DCMAKE_PREFIX_PATH=$prefix, and if it is to be installed also
with -DCMAKE_INSTALL_RPATH_USE_LINK_PATH=ON"
