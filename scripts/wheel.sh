#!/bin/bash
# wheel.sh [PYTHON]: builds the wheel of the Python package (docs/python.md), with all libraries
# that its program needs but the C library, into build/wheels. PYTHON (python3) needs pip and wheel;
# pip downloads what pyproject.toml requires to build.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m pip wheel . --no-deps --wheel-dir "$work/plain"
"$python" -m wheel unpack --dest "$work/open" "$work"/plain/axonn-*.whl
scripts/bundle-libraries.sh "$(echo "$work"/open/axonn-*/axonn/_program)" | tee "$work/bundled"
glibc=$(sed -n 's/^glibc //p' "$work/bundled")
mkdir -p "$work/packed" build/wheels
"$python" -m wheel pack --dest-dir "$work/packed" "$work"/open/axonn-*
"$python" -m wheel tags --remove --platform-tag "manylinux_${glibc/./_}_$(uname -m)" \
  "$work"/packed/axonn-*.whl
mv "$work"/packed/axonn-*.whl build/wheels
ls -l build/wheels
