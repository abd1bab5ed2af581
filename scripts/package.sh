#!/bin/bash
# package.sh [deb] [tarball] [arm64-deb] [arm64-tarball]: builds packages of the program for any
# processor of an architecture into build/packages, deb and tarball if none is named, and tries each
# of them:
#
#   deb            axonn_VERSION_amd64.deb and axonn-dev_VERSION_amd64.deb for this Debian, with MPI
#   tarball        axonn-VERSION-linux-x86_64.tar.xz with all libraries: needs no root; without MPI
#   arm64-deb, arm64-tarball   those for 64-bit ARM, cross-compiled on another machine
#
# On a machine with 64-bit ARM, deb and tarball are arm64 and aarch64.
set -euo pipefail
cd "$(dirname "$0")/.."
(($#)) || set -- deb tarball
packages=build/packages
mkdir -p "$packages"
# pack_tarball BUILD MACHINE [SYSROOT]
pack_tarball() {
  local build=$1 machine=$2 version
  version=$(sed -n 's/^CMAKE_PROJECT_VERSION:.*=//p' "$build/CMakeCache.txt")
  scripts/make-tarball.sh "$build" "$packages/axonn-$version-linux-$machine.tar.xz" "${@:3}"
}
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
      pack_tarball build/tarball "$(uname -m)"
      ;;
    arm64-deb)
      scripts/build.sh aarch64-package
      tests/packages/deb.sh build/aarch64-package "$(scripts/arm64-sysroot.sh)"
      cpack -G DEB --config build/aarch64-package/CPackConfig.cmake -B "$packages"
      ;;
    arm64-tarball)
      sysroot=$(scripts/arm64-sysroot.sh)
      scripts/build.sh aarch64-tarball axonn
      tests/packages/tarball.sh build/aarch64-tarball "$sysroot"
      pack_tarball build/aarch64-tarball aarch64 "$sysroot"
      ;;
    *)
      echo "error: package.sh makes deb, tarball, arm64-deb and arm64-tarball, not '$kind'" >&2
      exit 2
      ;;
  esac
done
rm -rf "$packages/_CPack_Packages"
ls -l "$packages"
