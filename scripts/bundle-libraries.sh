#!/bin/bash
# bundle-libraries.sh ROOT: copies all libraries that ROOT/bin/axonn needs, except for the C
# library, into ROOT/lib/axonn, and their licences, as Debian tells them, into
# ROOT/share/doc/axonn/licences.
# Prints "  LIBRARY: PACKAGE VERSION" for each, and "glibc VERSION": the oldest that will do.
set -euo pipefail

root=$1
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
ldd "$root/bin/axonn" | awk '$2 == "=>" {print $3}' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*)\.so' >"$work/needed"
if grep -E '/lib(mpi|cuda|cublas|nccl|amdhip)' "$work/needed" >&2; then
  echo "error: the libraries above belong to the machine: build with preset tarball" >&2
  exit 1
fi
while read -r library; do
  cp -L "$library" "$libraries"
  # Debian 12 knows files of /usr/lib by the name /lib if the package has them there, or reversed.
  real=$(readlink -f "$library")
  package=$(dpkg-query -S "$real" 2>/dev/null || dpkg-query -S "${real#/usr}")
  package=${package%%:*}
  cp "/usr/share/doc/$package/copyright" "$licences/$package"
  echo "  ${library##*/}: $package $(dpkg-query -W -f '${Version}' "$package")"
done <"$work/needed"
# Libraries whose headers are compiled into the program.
boost=$(dpkg-query -S "$(readlink -f /usr/include/boost/version.hpp)")
for package in libcli11-dev libtomlplusplus-dev libxxhash-dev nlohmann-json3-dev "${boost%%:*}"; do
  cp "/usr/share/doc/$package/copyright" "$licences/$package"
  echo "  headers: $package $(dpkg-query -W -f '${Version}' "$package")"
done
# The texts to which the licences refer.
grep -ohE '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$licences"/* | sort -u |
  while read -r text; do [[ ! -f $text ]] || cp -L "$text" "$licences"; done
strip --strip-unneeded "$libraries"/*
# shellcheck disable=SC2016
patchelf --force-rpath --set-rpath '$ORIGIN/../lib/axonn' "$root/bin/axonn"
glibc=$(objdump -T "$root/bin/axonn" "$libraries"/* | grep -oE 'GLIBC_2\.[0-9]+' | sort -Vu |
  tail -n 1)
echo "glibc ${glibc#GLIBC_}"
