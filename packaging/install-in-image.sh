#!/bin/bash
# install-in-image.sh [FLAGS FOR CMAKE]: as root in the image of a container, from the root of the
# source tree: installs what axonn needs, and builds and installs axonn in /usr/local.
set -euo pipefail
scripts/install-packages.sh
cmake --preset package -DCMAKE_INSTALL_PREFIX=/usr/local "$@"
cmake --build --preset package --parallel "$(nproc)"
cmake --install build/package
rm -rf /var/lib/apt/lists/*
