#!/bin/sh
# Build the stack in an image, from the distribution's packages and Spack. Called by stack.def and Dockerfile.
#
#   install.sh          build it; what runs goes into /opt/stack, as it will stand below /opt
#   install.sh --run    the packages that it needs to run
#
# The image has the distribution's Open MPI. On a cluster, use the host's MPI instead (docs/spack.md).
set -eu

cd -- "$(dirname -- "$0")/.."
export DEBIAN_FRONTEND=noninteractive
install() {
    apt-get update && apt-get install -y --no-install-recommends "$@" && rm -rf /var/lib/apt/lists/*
}
if [ "${1:-}" = --run ]; then
    # libaio has another name since Ubuntu 24.04 and Debian 13.
    install openmpi-bin zlib1g libaio1t64 || install openmpi-bin zlib1g libaio1
    exit
fi
install autoconf automake bzip2 ca-certificates file g++ gcc gfortran git gzip libaio-dev libopenmpi-dev libtool m4 make \
    openmpi-bin patch perl pkgconf python3 python3-venv tar unzip xz-utils zlib1g-dev zstd
ci/build-stack local
mkdir -p /opt/stack
tar -c -C /opt iogauge/containers iogauge/environments/local iogauge/.iogauge/spack/opt | tar -x -C /opt/stack
