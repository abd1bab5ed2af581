#!/bin/bash
# in-debian.sh 12|13 COMMAND...: runs a command in this source tree on Debian 12 or 13, as root:
#
#   scripts/in-debian.sh 13 make test
#
# The first run makes a minimal system with debootstrap, from the mirror that this machine's apt
# uses, in ${XDG_CACHE_HOME:-~/.cache}/axonn/debian-13. Later runs find there what earlier runs have
# installed, built and compiled. The source tree is /axonn; its build/ and out/ belong to the new
# system, so those of this machine stay as they are. Of the environment, only TERM and the proxies
# are passed on.
#
# Mounts are in a namespace that ends with the command, so nothing remains mounted, however the
# command ends; to start again, delete the folder. Runs at the same time share build/, as two runs
# of make would.
#
# Needs root. Exits with the command's code, or with 77, and the reason, if this machine cannot make
# or enter such a system.
set -euo pipefail

cannot() {
  echo "in-debian.sh: $*" >&2
  exit 77
}

# Prints the mirror of Debian that apt uses, which has other versions of Debian, too.
mirror() {
  # shellcheck disable=SC2016
  apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI)' 'Created-By: Packages' |
    awk '$1 == "Debian" && $2 !~ /security/ {print $3; exit}'
}

# make_system SUITE FOLDER
make_system() {
  local from log=$2.log
  command -v apt-get >/dev/null || cannot "apt-get was not found; this needs a Debian machine"
  scripts/install-packages.sh debootstrap || cannot "debootstrap cannot be installed"
  from=$(mirror)
  if [[ -z $from ]]; then
    apt-get update >"$log" 2>&1 || true
    from=$(mirror)
  fi
  [[ -n $from ]] || cannot "apt of this machine has no mirror of Debian"
  echo "making Debian $version in $2 from $from"
  rm -rf "$2.new"
  # Nothing here must survive a power failure: half the time.
  mkdir -p "$2.new/etc/dpkg/dpkg.cfg.d"
  echo force-unsafe-io >"$2.new/etc/dpkg/dpkg.cfg.d/unsafe-io"
  # The namespace unmounts what debootstrap mounts, should it be interrupted.
  unshare --mount debootstrap --variant=minbase --include=make "$1" "$2.new" "$from" >"$log" 2>&1 ||
    cannot "debootstrap $1 from $from failed ($log): $(tail -n 1 "$log")"
  mv "$2.new" "$2"
}

[[ $# -ge 2 && $1 == 1[23] ]] || {
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"
  exit 2
}
version=$1
shift
suite=bookworm
((version == 12)) || suite=trixie
cd "$(dirname "$0")/.."
((EUID == 0)) || cannot "needs root: sudo scripts/in-debian.sh $version $*"
unshare --mount true 2>/dev/null || cannot "this machine does not allow mounts (CAP_SYS_ADMIN)"

root=${XDG_CACHE_HOME:-$HOME/.cache}/axonn/debian-$version
mkdir -p "${root%/*}"
(
  flock 9
  [[ -d $root ]] || make_system "$suite" "$root"
) 9>"$root.lock"

# Folders of this source tree in the new system.
own=$root/var/lib/axonn/${PWD//\//-}
mkdir -p build out "$root/axonn" "$own/build" "$own/out"
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
passed_on=()
for name in TERM http_proxy https_proxy no_proxy; do
  [[ -z ${!name:-} ]] || passed_on+=("$name=${!name}")
done
# shellcheck disable=SC2016
exec unshare --mount "$BASH" -euc '
  root=$1 own=$2
  shift 2
  mount --bind "$root" "$root"  # so that / is a mount, as some programs expect
  mount --bind "$PWD" "$root/axonn"
  for folder in build out; do mount --bind "$own/$folder" "$root/axonn/$folder"; done
  for folder in dev sys; do mount --rbind "/$folder" "$root/$folder"; done
  mount -t proc proc "$root/proc"
  cd /
  exec chroot "$root" "$@"' in-debian "$root" "$own" \
  env -i -C /axonn "${passed_on[@]}" HOME=/root LANG=C.UTF-8 \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
