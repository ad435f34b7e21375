#!/bin/sh
# Build the stack in an image, from the distribution's packages and Spack. Called by stack.def and Dockerfile.
#
# The image's Open MPI is the distribution's: where the image runs, the host's takes its place (docs/spack.md).
set -eu

cd -- "$(dirname -- "$0")/.."
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends autoconf automake bzip2 ca-certificates file g++ gcc gfortran git gzip \
    libaio-dev libopenmpi-dev libtool m4 make openmpi-bin patch perl pkgconf python3 python3-venv tar unzip xz-utils \
    zlib1g-dev zstd
rm -rf /var/lib/apt/lists/*
ci/build-stack local
# What only building needs: Spack, its package repository and its caches of sources.
rm -rf .iogauge/spack/var/spack/cache .iogauge/spack/.git .iogauge/spack-cache
