#!/bin/bash
# arm64-depends.sh PROGRAM SYSROOT: prints the Debian packages that a program for 64-bit ARM needs,
# "libc6 (>= 2.36), libdnnl2 (>= 2.6.3)", from its libraries and the files of the SYSROOT that
# scripts/arm64-sysroot.sh made.
set -euo pipefail
program=$1 sysroot=$2

aarch64-linux-gnu-readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
  while read -r library; do
    for folder in usr/lib lib; do
      found=$sysroot/$folder/aarch64-linux-gnu/$library
      [[ ! -e $found ]] || break
    done
    [[ -e $found ]] || found=$sysroot/lib/$library
    real=$(readlink -f "$found")
    awk -v path="${real#"$sysroot"}" '$1 == path || "/usr" $1 == path {print $2, $3; exit}' \
      "$sysroot/files" | grep . ||
      { echo "error: $library is of no package of $sysroot" >&2; exit 1; }
  done | sort -u |
  awk '{sub(/-[^-]*$/, "", $2); printf "%s%s (>= %s)", (NR > 1 ? ", " : ""), $1, $2} END {print ""}'
