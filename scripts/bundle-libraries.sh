#!/bin/bash
# bundle-libraries.sh [--with-glibc] ROOT [SYSROOT]: copies all libraries that ROOT/bin/axonn needs,
# except for the C library, into ROOT/lib/axonn, and their licences, as Debian tells them, into
# ROOT/share/doc/axonn/licences. With the SYSROOT that scripts/arm64-sysroot.sh made, the program is
# one for 64-bit ARM, and QEMU runs its loader.
# Prints "  LIBRARY: PACKAGE VERSION" for each, and "glibc VERSION": the oldest that will do.
# --with-glibc: on systems with an older one, too. The C library goes into ROOT/glibc, the program
# into ROOT/libexec, and ROOT/bin/axonn is packaging/with-glibc.sh, which chooses.
set -euo pipefail

with_glibc=0
[[ $1 != --with-glibc ]] || { with_glibc=1; shift; }
root=$1 sysroot=${2:-}
tools=${sysroot:+aarch64-linux-gnu-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! command -v patchelf >/dev/null; then
  echo "error: patchelf was not found; as root, run: apt-get install patchelf" >&2
  exit 1
fi

# The program's own RPATH comes before LD_LIBRARY_PATH, and holds for the libraries' libraries too,
# so no module of a cluster replaces them.
libraries=$root/lib/axonn
licences=$root/share/doc/axonn/licences
mkdir -p "$libraries" "$licences"
# libraries_of PROGRAM: its libraries as the loader finds them, "NAME => PATH (ADDRESS)".
libraries_of() {
  if [[ -z $sysroot ]]; then
    ldd "$1"
  else
    qemu-aarch64 -L "$sysroot" "$sysroot/lib/ld-linux-aarch64.so.1" \
      --library-path "$sysroot/lib/aarch64-linux-gnu:$sysroot/usr/lib/aarch64-linux-gnu" --list "$1"
  fi
}
# package_of FILE: "PACKAGE VERSION". Debian 12 knows files of /usr/lib by the name /lib if the
# package has them there, or reversed.
package_of() {
  local real package
  real=$(readlink -f "$1")
  if [[ -n $sysroot ]]; then
    awk -v path="${real#"$sysroot"}" '$1 == path || "/usr" $1 == path {print $2, $3; exit}' \
      "$sysroot/files"
  else
    package=$(dpkg-query -S "$real" 2>/dev/null || dpkg-query -S "${real#/usr}")
    dpkg-query -W -f '${Package} ${Version}\n' "${package%%:*}"
  fi
}
# copy_licence PACKAGE
copy_licence() { cp "$sysroot/usr/share/doc/$1/copyright" "$licences/$1"; }
# copy_libraries FOLDER: those of the standard input, and their licences.
copy_libraries() {
  local library package version
  while read -r library; do
    cp -L "$library" "$1"
    read -r package version < <(package_of "$library")
    copy_licence "$package"
    echo "  ${library##*/}: $package $version"
  done
}

libraries_of "$root/bin/axonn" | awk '$2 == "=>" {print $3}' | sort -u >"$work/all"
c_library='/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*)\.so'
grep -vE "$c_library" "$work/all" >"$work/needed"
if grep -E '/lib(mpi|cuda|cublas|nccl|amdhip)' "$work/needed" >&2; then
  echo "error: the libraries above belong to the machine: build with preset tarball" >&2
  exit 1
fi
copy_libraries "$libraries" <"$work/needed"
if ((with_glibc)); then
  loader=$(LC_ALL=C readelf -l "$root/bin/axonn" | sed -n 's/.*program interpreter: \(.*\)\]/\1/p')
  mkdir -p "$root/glibc" "$root/libexec"
  { grep -E "$c_library" "$work/all"; echo "$loader"; } | copy_libraries "$root/glibc"
fi
# Libraries whose headers are compiled into the program.
for header in CLI/CLI.hpp toml++/toml.h xxhash.h nlohmann/json.hpp boost/version.hpp; do
  read -r package version < <(package_of "$sysroot/usr/include/$header")
  copy_licence "$package"
  echo "  headers: $package $version"
done
# The texts to which the licences refer.
grep -ohE '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$licences"/* | sort -u |
  while read -r text; do [[ ! -f $text ]] || cp -L "$text" "$licences"; done
"${tools}strip" --strip-unneeded "$libraries"/*
# shellcheck disable=SC2016
patchelf --force-rpath --set-rpath '$ORIGIN/../lib/axonn' "$root/bin/axonn"
glibc=$("${tools}objdump" -T "$root/bin/axonn" "$libraries"/* | grep -oE 'GLIBC_2\.[0-9]+' |
  sort -Vu | tail -n 1)
glibc=${glibc#GLIBC_}
if ((with_glibc)); then
  # axonn finds its configurations in the share/ beside the folder of /proc/self/exe, which is the
  # loader or the program, so each lies in a folder of ROOT.
  mv "$root/bin/axonn" "$root/libexec/axonn"
  sed "s|@LOADER@|$loader|; s|@LOADER_NAME@|${loader##*/}|; s|@GLIBC@|$glibc|
    s|@MINOR@|${glibc#2.}|" "${0%/*}/../packaging/with-glibc.sh" >"$root/bin/axonn"
  chmod +x "$root/bin/axonn"
fi
echo "glibc $glibc"
