#!/bin/bash
# wheel.sh [PYTHON]: builds the wheel of the Python package (docs/python.md), with all libraries
# that its program needs, also the C library, into build/wheels. PYTHON (python3) needs pip and
# wheel; pip downloads what pyproject.toml requires to build.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}
glibc=2.28  # of the oldest system on which it was tried
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m pip wheel . --no-deps --wheel-dir "$work/plain"
"$python" -m wheel unpack --dest "$work/open" "$work"/plain/axonn-*.whl
open=$(echo "$work"/open/axonn-*)
program=$open/axonn/_program
scripts/bundle-libraries.sh --with-glibc "$program" | tee "$work/bundled"
{
  echo "Debian's libraries, unchanged but for stripped symbols, and their packages, also of source:"
  grep "^  " "$work/bundled"
} >"$program/share/doc/axonn/licences/VERSIONS"
scripts/check-glibc.sh "$open" "$glibc" "$program"
mkdir -p "$work/packed" build/wheels
"$python" -m wheel pack --dest-dir "$work/packed" "$open"
"$python" -m wheel tags --remove --platform-tag "manylinux_${glibc/./_}_$(uname -m)" \
  "$work"/packed/axonn-*.whl
mv "$work"/packed/axonn-*.whl build/wheels
ls -l build/wheels
