#!/bin/bash
# Formats every C++ source with clang-format. With --check it changes nothing and fails if a source
# is not formatted. Versions differ in details, and the sources are formatted with Debian 12's, 14:
# with another one the exit code is 77, and nothing is changed.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly version=14
if ! clang-format --version | grep -q "version $version\."; then
  echo "skipped: the sources are formatted with clang-format $version, here is" \
    "$(clang-format --version | grep -o 'version [0-9.]*')"
  exit 77
fi
mapfile -d '' sources < <(
  find axonn bench examples tests \( -name '*.h' -o -name '*.cpp' -o -name '*.cu*' \) \
    -not -path '*/build/*' -print0)
case ${1:-} in
  --check) clang-format --dry-run --Werror "${sources[@]}" ;;
  '') clang-format -i "${sources[@]}" ;;
  *)
    echo "error: format.sh takes --check or nothing, not '$1'" >&2
    exit 2
    ;;
esac
