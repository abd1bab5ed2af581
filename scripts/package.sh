#!/bin/bash
# package.sh [deb] [tarball]: builds packages of the program for any x86-64 into build/packages,
# both if none is named, and tries each of them:
#
#   deb       axonn_VERSION_amd64.deb and axonn-dev_VERSION_amd64.deb for this Debian, with MPI
#   tarball   axonn-VERSION-linux-x86_64.tar.xz with all libraries: needs no root; without MPI
set -euo pipefail
cd "$(dirname "$0")/.."
(($#)) || set -- deb tarball
packages=build/packages
mkdir -p "$packages"
for kind; do
  case $kind in
    deb)
      scripts/build.sh package
      tests/packages/deb.sh build/package
      cpack -G DEB --config build/package/CPackConfig.cmake -B "$packages"
      ;;
    tarball)
      scripts/build.sh tarball axonn
      tests/packages/tarball.sh build/tarball
      version=$(sed -n 's/^CMAKE_PROJECT_VERSION:.*=//p' build/tarball/CMakeCache.txt)
      scripts/make-tarball.sh build/tarball "$packages/axonn-$version-linux-$(uname -m).tar.xz"
      ;;
    *)
      echo "error: package.sh makes deb and tarball, not '$kind'" >&2
      exit 2
      ;;
  esac
done
rm -rf "$packages/_CPack_Packages"
ls -l "$packages"
