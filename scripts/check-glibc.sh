#!/bin/bash
# check-glibc.sh FOLDER VERSION [ROOT]: fails if a program or library below FOLDER asks a system
# with glibc VERSION for what it lacks: a newer version of the C library, or another library. Those
# below ROOT, a folder that bundle-libraries.sh --with-glibc has filled, may ask the libraries of
# ROOT for anything that these have. Prints each "FILE asks LIBRARY for VERSION".
set -euo pipefail
folder=$1 version=$2 root=${3:-}
facts=$(mktemp)
trap 'rm -f "$facts"' EXIT

# asks FILE LIBRARY VERSION, offers FILE LIBRARY VERSION; "itself" is a library of any version.
find "$folder" -type f | while read -r file; do
  LC_ALL=C objdump -p "$file" 2>/dev/null | awk -v OFS='\t' -v file="$file" '
    function say(verb, library, version) { print verb, file, library, version }
    /^Version definitions:/ { part = "definitions" }
    /^Version References:/ { part = "references" }
    $1 == "NEEDED" { say("asks", $2, "itself") }
    $1 == "SONAME" { name = $2; say("offers", name, "itself") }
    part == "definitions" && $2 ~ /^0x/ { say("offers", name, $4) }
    part == "references" && /required from/ { library = $3; sub(/:$/, "", library) }
    part == "references" && $1 ~ /^0x/ { say("asks", library, $4) }' || true
done >"$facts"
grep -q ^asks "$facts" || { echo "error: $folder has no programs or libraries" >&2; exit 1; }

awk -F '\t' -v root="${root:+$root/}" -v newest="${version#2.}" '
  function inside(file) { return root != "" && index(file, root) == 1 }
  # Other libraries that manylinux (PEP 600) expects of a system are not asked for.
  function system_has(library, version, parts) {
    if (library !~ /^(lib(c|m|dl|rt|pthread|resolv|util|mvec)|ld-linux[-a-z0-9_]*)\.so\.[0-9]$/)
      return 0
    split(version, parts, /[_.]/)
    return version == "itself" || (version ~ /^GLIBC_2\.[0-9.]+$/ && parts[3] + 0 <= newest + 0)
  }
  NR == FNR { if ($1 == "offers" && inside($2)) offered[$3, $4]; next }
  $1 == "asks" && !system_has($3, $4) && !(inside($2) && ($3, $4) in offered) {
    print $2 " asks " $3 " for " ($4 == "itself" ? "any version" : $4)
    faults = 1
  }
  END { exit faults }' "$facts" "$facts" >&2 || {
  echo "error: not every system with glibc $version has these; bring them along, or name the" \
    "result by a newer glibc" >&2
  exit 1
}
