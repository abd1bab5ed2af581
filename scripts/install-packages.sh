#!/bin/bash
# Installs the Debian packages that axonn is built from, where they are missing. Needs root or sudo
# only if there is something to install.
set -euo pipefail

packages=(
  build-essential cmake ninja-build ccache pkg-config  # to build
  libdnnl-dev                                          # matrix products
  libopenmpi-dev openmpi-bin                           # the mpi transport
  libtomlplusplus-dev libcli11-dev                     # configuration files, flags
  nlohmann-json3-dev libfmt-dev                        # JSON, text
  libpcre2-dev libicu-dev libsentencepiece-dev         # tokenizers: patterns, normal forms, models
  libxxhash-dev                                        # checksums
  libgtest-dev libgmock-dev clang-format               # tests
)

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0

if ! command -v apt-get >/dev/null; then
  echo "error: this is no Debian; install what these packages hold: ${missing[*]}" >&2
  exit 1
fi
as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "error: as root, run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "installing ${missing[*]}"
# Of a command's output only the last lines are shown, and only if it fails.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "$@" >"$log" 2>&1 && return
  tail -n 20 "$log" >&2
  echo "error: failed: $*" >&2
  exit 1
}
quietly apt-get -o DPkg::Lock::Timeout=300 update
quietly apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${missing[@]}"
