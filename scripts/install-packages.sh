#!/bin/bash
# Installs the Debian packages that axonn is built from, where they are missing. With --tests also
# what developers need: Ninja, ccache, GoogleTest, clang-format, and hipcc, for the tests that
# compile for AMD GPUs, if there is a package of it here. Needs root or sudo only if there is
# something to install.
set -euo pipefail
tests=0
[[ ${1:-} == --tests ]] && tests=1

packages=(
  build-essential cmake                                # to build
  libdnnl-dev                                          # matrix products
  libopenmpi-dev openmpi-bin                           # the mpi transport
  libtomlplusplus-dev libcli11-dev                     # configuration files, flags
  nlohmann-json3-dev libfmt-dev                        # JSON, text
  libpcre2-dev libicu-dev libsentencepiece-dev         # tokenizers: patterns, normal forms, models
  libxxhash-dev                                        # checksums
)
((!tests)) || packages+=(
  ninja-build ccache                                   # presets dev, debug, asan, tsan, fuzz
  libgtest-dev libgmock-dev clang-format               # tests, the format of the sources
)

is_installed() {
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null || true) == installed ]]
}
missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done
hip=(hipcc libamdhip64-dev)
have_hip=0
command -v hipcc >/dev/null && have_hip=1
((${#missing[@]} || (tests && !have_hip))) || exit 0

# without_hip REASON: hipcc is wanted only where it can be had.
without_hip() {
  echo "without hipcc, so nothing is compiled for AMD GPUs: $1"
  exit 0
}

if ! command -v apt-get >/dev/null; then
  ((${#missing[@]})) || without_hip "this is no Debian"
  echo "error: this is no Debian; install what these packages hold: ${missing[*]}" >&2
  exit 1
fi
as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    ((${#missing[@]})) || without_hip "as root, run: apt-get install ${hip[*]}"
    echo "error: as root, run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

# Of a command's output only the last lines are shown, and only if it fails.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@" \
    >"$log" 2>&1
}
quietly() {
  apt "$@" && return
  tail -n 20 "$log" >&2
  echo "error: failed: apt-get $*" >&2
  exit 1
}
if ((${#missing[@]})); then
  echo "installing ${missing[*]}"
  quietly update
  quietly install -y --no-install-recommends "${missing[@]}"
elif ((tests && !have_hip)); then
  apt update || true  # old lists may do
fi
if ((tests && !have_hip)); then
  echo "installing ${hip[*]}"
  apt install -y --no-install-recommends "${hip[@]}" || without_hip "$(tail -n 1 "$log")"
fi
