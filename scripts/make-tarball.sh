#!/bin/bash
# make-tarball.sh BUILD FILE.tar.xz [SYSROOT]: packs the program of a build folder (preset tarball)
# and all libraries that it needs, except for the C library, so that it runs where it is unpacked,
# without root. The extension chooses the compression. Debian tells the licences of the libraries.
# SYSROOT is that of bundle-libraries.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

build=$1 file=$2 sysroot=${3:-}
name=$(basename "$file")
name=${name%.tar.*}
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
root=$tree/$name
cmake --install "$build" --prefix "$root" --component program --strip >/dev/null

scripts/bundle-libraries.sh "$root" ${sysroot:+"$sysroot"} >"$tree/bundled"
machine=$(LC_ALL=C readelf -h "$root/bin/axonn" | sed -n 's/^ *Machine: *//p')
case $machine in
  *X86-64) processors="x86-64 processor" ;;
  AArch64) processors="64-bit ARM processor" ;;
  *) processors="processor for $machine" ;;
esac
glibc=$(sed -n 's/^glibc //p' "$tree/bundled")

cat >"$root/README.txt" <<TEXT
axonn ${name#axonn-}: trains and fine-tunes language models

  bin/axonn info                               what this machine has, and whether it will do
  bin/axonn train configs/quickstart.toml      trains a small model for about a minute
  bin/axonn generate --model out/quickstart/checkpoints --prompt "The town of" --tokens 300
  bin/axonn help

It runs where it is unpacked and needs no root. It needs Linux on any $processors and glibc
$glibc or newer (ldd --version shows yours); on older systems build from source. Ranks are
threads of one machine: for MPI and for GPUs, build from source or take a container. With
environment modules: module use FOLDER/share/modulefiles; module load axonn

Documentation: share/doc/axonn. axonn's licence: share/doc/axonn/copyright. It comes with these
libraries, unchanged but for stripped symbols, or was compiled with their headers. Their licences
are in share/doc/axonn/licences:

$(grep "^  " "$tree/bundled")
TEXT
mkdir -p "$(dirname "$file")"
tar -C "$tree" --owner 0 --group 0 --numeric-owner --sort name -caf "$file" "$name"
echo "$file: $(du -h "$file" | cut -f1), $(du -sh "$root" | cut -f1) unpacked; needs" \
  "glibc $glibc"
