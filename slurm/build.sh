#!/bin/bash
# build.sh perlmutter|frontier|alps PREFIX [-DNAME=VALUE...] [OPTIONS]
#
# Builds axonn for a site, on one of its login nodes: loads the modules that the site's train.sh
# loads and those that compile, builds the libraries that the site lacks into the folder PREFIX, and
# then build/SITE/bin/axonn. Nobody has run it there. On Alps, in the uenv of the jobs:
#
#   uenv run prgenv-gnu/25.11:v1 --view=default -- slurm/build.sh alps "$SCRATCH/axonn-libraries"
#
# -DNAME=VALUE is for axonn's CMake, after what is set here; OPTIONS are those of
# scripts/site-dependencies.sh: without a network on the login node --archives FOLDER, which that
# script's --download FOLDER fills elsewhere.
set -eo pipefail
usage() {
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0" >&2
  exit 2
}
(($# >= 2)) || usage
site=$1 prefix=$2
shift 2

case $site in
  perlmutter)
    module load PrgEnv-gnu cudatoolkit nccl cudnn cmake
    export CC=cc CXX=CC
    flags=(-DAXONN_CUDA=ON -DAXONN_CUDNN=ON -DAXONN_CUDA_ARCH=80-real)
    ;;
  frontier)
    module load PrgEnv-gnu cpe rocm craype-accel-amd-gfx90a cmake
    export CC=cc CXX=CC
    flags=(-DAXONN_CUDA=OFF -DAXONN_HIP=ON -DAXONN_HIP_ARCH=gfx90a -DAXONN_MARCH=znver3)
    ;;
  alps)
    flags=(-DAXONN_CUDA=ON -DAXONN_CUDA_ARCH=90a-real)
    ;;
  *) usage ;;
esac

options=()
for option; do
  if [[ $option == -D* ]]; then flags+=("$option"); else options+=("$option"); fi
done
# CMake does not look where modules tell compilers and the loader to look.
export CMAKE_INCLUDE_PATH=${CPATH:-} CMAKE_LIBRARY_PATH=${LIBRARY_PATH:-}:${LD_LIBRARY_PATH:-}

mkdir -p "$prefix"
prefix=$(cd "$prefix" && pwd)
cd "$(dirname "$0")/.."
scripts/site-dependencies.sh "$prefix" "${options[@]}"
# Programs find the libraries of PREFIX by their paths, in jobs too.
cmake --preset release -B "build/$site" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_INSTALL_RPATH_USE_LINK_PATH=ON -DAXONN_MPI=ON "${flags[@]}"
cmake --build "build/$site" --parallel "$(($(nproc) < 16 ? $(nproc) : 16))" --target axonn
echo "in jobs: export AXONN=$PWD/build/$site/bin/axonn"
