#!/bin/bash
# Formats every C++ source with clang-format. With --check it changes nothing and fails if a source
# is not formatted.
set -euo pipefail
cd "$(dirname "$0")/.."

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
