#!/bin/bash
# make-tarball.sh BUILD FILE.tar.xz: packs the program of a build folder (preset tarball) and all
# libraries that it needs, except for the C library, so that it runs where it is unpacked, without
# root. The extension chooses the compression. Debian tells the licences of the libraries.
set -euo pipefail
cd "$(dirname "$0")/.."

build=$1 file=$2
name=$(basename "$file")
name=${name%.tar.*}
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
root=$tree/$name
if ! command -v patchelf >/dev/null; then
  echo "error: patchelf was not found; as root, run: apt-get install patchelf" >&2
  exit 1
fi
cmake --install "$build" --prefix "$root" --component program --strip >/dev/null

# The program's own RPATH comes before LD_LIBRARY_PATH, and holds for the libraries' libraries too,
# so no module of a cluster replaces them.
libraries=$root/lib/axonn
licences=$root/share/doc/axonn/licences
mkdir -p "$libraries" "$licences"
ldd "$root/bin/axonn" | awk '$2 == "=>" {print $3}' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*)\.so' >"$tree/needed"
if grep -E '/lib(mpi|cuda|cublas|nccl|amdhip)' "$tree/needed" >&2; then
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
  echo "  ${library##*/}: $package $(dpkg-query -W -f '${Version}' "$package")" >>"$tree/bundled"
done <"$tree/needed"
# Libraries whose headers are compiled into the program.
boost=$(dpkg-query -S "$(readlink -f /usr/include/boost/version.hpp)")
for package in libcli11-dev libtomlplusplus-dev libxxhash-dev nlohmann-json3-dev "${boost%%:*}"; do
  cp "/usr/share/doc/$package/copyright" "$licences/$package"
  echo "  headers: $package $(dpkg-query -W -f '${Version}' "$package")" >>"$tree/bundled"
done
# The texts to which the licences refer.
grep -ohE '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$licences"/* | sort -u |
  while read -r text; do [[ ! -f $text ]] || cp -L "$text" "$licences"; done
strip --strip-unneeded "$libraries"/*
# shellcheck disable=SC2016
patchelf --force-rpath --set-rpath '$ORIGIN/../lib/axonn' "$root/bin/axonn"
glibc=$(objdump -T "$root/bin/axonn" "$libraries"/* | grep -oE 'GLIBC_2\.[0-9]+' | sort -Vu |
  tail -n 1)

cat >"$root/README.txt" <<TEXT
axonn ${name#axonn-}: trains and fine-tunes language models

  bin/axonn info                               what this machine has, and whether it will do
  bin/axonn train configs/quickstart.toml      trains a small model for about a minute
  bin/axonn generate --model out/quickstart/checkpoints --prompt "The town of" --tokens 300
  bin/axonn help

It runs where it is unpacked and needs no root. It needs Linux on any x86-64 processor and glibc
${glibc#GLIBC_} or newer (ldd --version shows yours); on older systems build from source. Ranks are
threads of one machine: for MPI and for GPUs, build from source or take a container. With
environment modules: module use FOLDER/share/modulefiles; module load axonn

Documentation: share/doc/axonn. axonn's licence: share/doc/axonn/copyright. It comes with these
libraries, unchanged but for stripped symbols, or was compiled with their headers. Their licences
are in share/doc/axonn/licences:

$(cat "$tree/bundled")
TEXT
mkdir -p "$(dirname "$file")"
tar -C "$tree" --owner 0 --group 0 --numeric-owner --sort name -caf "$file" "$name"
echo "$file: $(du -h "$file" | cut -f1), $(du -sh "$root" | cut -f1) unpacked; needs" \
  "glibc ${glibc#GLIBC_}"
