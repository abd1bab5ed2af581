#!/bin/bash
# install-packages.sh [--unit-tests | --tests | PACKAGE...]: installs the Debian packages that axonn
# needs and that are missing. --unit-tests adds what compiles the tests: Ninja, ccache, GoogleTest.
# --tests adds all that developers need, that is also clang-format, Node.js, Python, strace,
# patchelf, QEMU, Slurm, ShellCheck, and hipcc, if it is available, for the test that compiles for
# AMD GPUs. Names of packages stand for these alone. Needs root or sudo only if something is
# missing.
set -euo pipefail
unit_tests=0
tests=0
case ${1:-} in
  --unit-tests) unit_tests=1 ;;
  --tests) unit_tests=1 tests=1 ;;
esac

packages=(
  build-essential cmake                                # compiler and build system
  libdnnl-dev                                          # matrix products
  libopenmpi-dev openmpi-bin                           # the mpi transport
  libtomlplusplus-dev libcli11-dev                     # configuration files, flags
  nlohmann-json3-dev libfmt-dev                        # JSON, text
  libpcre2-dev libicu-dev libsentencepiece-dev         # tokenizers: patterns, normal forms, models
  libxxhash-dev                                        # checksums
  zlib1g-dev libzstd-dev libbz2-dev liblzma-dev        # compressed text
  libsnappy-dev liblz4-dev libbrotli-dev               # Parquet files
  libboost-dev                                         # axonn serve, axonn board: web server
)
((!unit_tests)) || packages+=(
  ninja-build ccache                                   # presets dev, debug, asan, tsan, fuzz
  libgtest-dev libgmock-dev                            # tests
  libopenblas-dev                                      # products that axonn tune compares
)
((!tests)) || packages+=(
  clang-format                                         # format of the sources
  nodejs                                               # tests of the HTML report's script
  python3 strace                                       # attacks on the program
  patchelf qemu-user                                   # packages, and older processors to try them
  slurmctld slurmd slurm-client munge shellcheck       # tests of the job scripts
  python3-numpy python3-xxhash                         # tests of files that other tools read
  python3-pytest mypy                                  # tests of the Python package and its types
  python3-jinja2                                       # tests of chat templates
)
[[ ! ${1:-} =~ ^[a-z] ]] || packages=("$@")

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

# without_hip REASON: ends without an error, because hipcc is optional.
without_hip() {
  echo "no hipcc, so nothing is compiled for AMD GPUs: $1"
  exit 0
}

if ! command -v apt-get >/dev/null; then
  ((${#missing[@]})) || without_hip "apt-get was not found"
  echo "error: apt-get was not found; install the contents of these packages: ${missing[*]}" >&2
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

# Shows only the last lines of a command's output, and only if it fails.
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
  apt update || true  # old package lists may suffice
fi
if ((tests && !have_hip)); then
  echo "installing ${hip[*]}"
  apt install -y --no-install-recommends "${hip[@]}" || without_hip "$(tail -n 1 "$log")"
fi
