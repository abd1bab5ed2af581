#!/bin/bash
# arm64-sysroot.sh: makes the folder from which preset aarch64 takes the headers and libraries of
# 64-bit ARM, from Debian's packages for arm64 in this machine's version of Debian, and prints its
# path: ${XDG_CACHE_HOME:-~/.cache}/axonn/arm64-VERSION. A later run with the same script only
# prints the path; to start again, delete the folder.
#
# Packages are only unpacked there: apt has lists and a state of its own, so this machine keeps its
# architectures and its packages. Needs no root. Exits with 77, and the reason, if this machine
# cannot make the folder.
set -euo pipefail

cannot() {
  echo "arm64-sysroot.sh: $*" >&2
  exit 77
}

# Those of install-packages.sh without tools; GoogleTest for the tests.
packages=(
  libc6-dev libstdc++-12-dev libgomp1 libdnnl-dev libxxhash-dev libfmt-dev nlohmann-json3-dev
  libtomlplusplus-dev libcli11-dev libpcre2-dev zlib1g-dev libzstd-dev libbz2-dev liblzma-dev
  libboost-dev libicu-dev libsentencepiece-dev libsnappy-dev liblz4-dev libbrotli-dev
  libopenmpi-dev libopenblas-dev libgtest-dev libgmock-dev
)

for tool in apt-get dpkg-deb; do
  command -v "$tool" >/dev/null || cannot "$tool was not found; this needs a Debian machine"
done
# shellcheck disable=SC1091
suite=$(. /etc/os-release && [[ $ID == debian ]] && echo "${VERSION_CODENAME:-}") ||
  cannot "this needs a Debian machine, whose mirror has packages for arm64"
[[ $suite != trixie ]] || packages=("${packages[@]/libstdc++-12-dev/libstdc++-14-dev}")
root=${XDG_CACHE_HOME:-$HOME/.cache}/axonn/arm64-$suite
mkdir -p "${root%/*}"
exec 9>"$root.lock"
flock 9
if cmp -s "$0" "$root/made-by"; then
  echo "$root"
  exit
fi

# shellcheck disable=SC2016
mirror=$(apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI)' 'Created-By: Packages' |
  awk '$1 == "Debian" && $2 !~ /security/ {print $3; exit}')
[[ -n $mirror ]] || cannot "apt has no mirror of Debian, or no lists: apt-get update"
rm -rf "$root.new"
mkdir -p "$root.new"/apt/{lists,archives,etc}/partial
state=$root.new/apt
echo "deb $mirror $suite main" >"$state/sources.list"
: >"$state/status"
own=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$state"
  -o Dir::State::Lists="$state/lists" -o Dir::State::status="$state/status"
  -o Dir::Cache="$state" -o Dir::Cache::archives="$state/archives"
  -o Dir::Etc::SourceList="$state/sources.list" -o Dir::Etc::SourceParts=/dev/null
  -o APT::Sandbox::User=root -o Acquire::Languages=none)
for command in update "install -y --download-only --no-install-recommends ${packages[*]}"; do
  # shellcheck disable=SC2086
  apt-get "${own[@]}" $command >"$root.log" 2>&1 ||
    cannot "apt-get ${command%% *} for arm64 failed ($root.log): $(tail -n 1 "$root.log")"
done
mkdir "$root.new/root"
# files: "PATH PACKAGE VERSION" for each file, for scripts/bundle-libraries.sh.
for package in "$state"/archives/*.deb; do
  # shellcheck disable=SC2016
  of=$(dpkg-deb -W --showformat '${Package} ${Version}' "$package")
  dpkg-deb -X "$package" "$root.new/root" | sed -n "s|^\.\(/.*[^/]\)\$|\1 $of|p"
done >"$root.new/files"
mv "$root.new/files" "$root.new/root/files"
[[ -e $root.new/root/lib ]] || ln -s usr/lib "$root.new/root/lib"  # in Debian 13 base-files has it
# Links to absolute paths would lead to this machine's libraries.
find "$root.new/root" -type l -lname '/*' | while read -r link; do
  ln -sf --relative "$root.new/root$(readlink "$link")" "$link"
done
# Debian chooses an OpenBLAS by a link, which is made when its package is installed.
for name in libopenblas.so libopenblas.so.0; do
  ln -s "openblas-pthread/$name" "$root.new/root/usr/lib/aarch64-linux-gnu/$name"
done
cp "$0" "$root.new/root/made-by"
rm -rf "$root"
mv "$root.new/root" "$root"
rm -rf "$root.new"
echo "$root"
