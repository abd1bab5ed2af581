#!/bin/bash
# scripts/site-dependencies.sh builds nothing where CMake finds everything, knows each library by
# CMake's name, and refuses archives that are missing or are others. Nothing is downloaded or built.
#
#   site_dependencies_test.sh FOLDER
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
folder=$1
rm -rf "$folder"
mkdir -p "$folder/archives"

# says CODE TEXT ARGUMENTS...: the script ends with CODE and prints TEXT.
says() {
  local code=$1 text=$2 said status
  shift 2
  said=$(timeout 60 scripts/site-dependencies.sh "$@" 2>&1)
  status=$?
  if ((status != code)) || [[ $said != *"$text"* ]] || [[ $said == *building* ]]; then
    echo "FAILED: $*: exit code $status, not $code and '$text': $said"
    failed=1
  fi
}
failed=0
offline=(--archives "$folder/archives")
says 0 "all found; configure axonn with -DCMAKE_PREFIX_PATH=$folder/prefix" \
  "$folder/prefix" "${offline[@]}" --required
says 1 "$folder/archives/xxhash-0.8.3.tar.gz is missing" "$folder/prefix" "${offline[@]}" xxhash
says 1 "--download FOLDER zstd xxhash" "$folder/prefix" xxhash "${offline[@]}" zstd
echo other >"$folder/archives/xxhash-0.8.3.tar.gz"
says 1 "xxhash-0.8.3.tar.gz is another archive" "$folder/prefix" "${offline[@]}" xxhash

# A library of the prefix counts if it is not too old.
mkdir -p "$folder/prefix/include"
header=$folder/prefix/include/xxhash.h
printf '#define XXH_VERSION_MAJOR    0\n#define XXH_VERSION_MINOR    8\n' >"$header"
says 0 "found    xxhash: $folder/prefix/include" "$folder/prefix" "${offline[@]}" xxhash
sed -i 's/8$/7/' "$header"
says 1 "xxhash-0.8.3.tar.gz is another archive" "$folder/prefix" "${offline[@]}" xxhash

says 2 "'zlip' is not a library" "$folder/prefix" zlip
says 2 "--download FOLDER" --required
says 2 "--jobs takes a number" "$folder/prefix" --jobs many
says 1 "none is not a folder" "$folder/prefix" --archives "$folder/none"
CXX=no-compiler says 1 "no-compiler was not found" "$folder/prefix" "${offline[@]}"

# Each line of --list is a name, an address and a SHA-256.
wrong=$(scripts/site-dependencies.sh --list |
  grep -vE '^(  or )?[a-z][^ ]*\.tar\.(gz|xz|bz2) https://[^ ]+ [0-9a-f]{64}$')
if [[ -n $wrong ]]; then
  echo "FAILED: --list prints $wrong"
  failed=1
fi
sed -n 's/^library .*\(AXONN_[A-Z0-9_]*\).*/\1/p' scripts/site-dependencies.sh >"$folder/variables"
while read -r variable; do
  grep -q "^axonn_find($variable " cmake/dependencies.cmake && continue
  echo "FAILED: cmake/dependencies.cmake does not find $variable"
  failed=1
done <"$folder/variables"
exit $failed
