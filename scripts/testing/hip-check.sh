#!/bin/bash
# hip-check.sh: compiles the GPU backend for AMD GPUs. Exits with 77 where hipcc is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! command -v hipcc >/dev/null; then
  echo "skipped: hipcc was not found (Debian packages hipcc and libamdhip64-dev)"
  exit 77
fi
exec scripts/build.sh hip-check
