#!/bin/sh
# Build the stack in an image, from the distribution's packages and Spack. Called by stack.def and Dockerfile.
#
# The image has the distribution's Open MPI. On a cluster, use the host's MPI instead (docs/spack.md).
set -eu

cd -- "$(dirname -- "$0")/.."
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends autoconf automake bzip2 ca-certificates file g++ gcc gfortran git gzip \
    libaio-dev libopenmpi-dev libtool m4 make openmpi-bin patch perl pkgconf python3 python3-venv tar unzip xz-utils \
    zlib1g-dev zstd
rm -rf /var/lib/apt/lists/*
ci/build-stack local
# Remove files that only the build needs: Spack's git history, its package repository and its caches of sources.
rm -rf .iogauge/spack/var/spack/cache .iogauge/spack/.git .iogauge/spack-cache
