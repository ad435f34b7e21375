#!/usr/bin/env bash
# Bring iogauge, in the version that .gitlab-ci.yml names, into iogauge/, with its Python packages and programs.
# A second run does nothing, unless the version has changed.
#
#   ./setup            all of it
#   ./setup --fetch    only iogauge itself
#
# IOGAUGE_SOURCE=URL chooses where iogauge comes from.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
source=${IOGAUGE_SOURCE:-SOURCE}
version=$(sed -n 's/^ *ref: *//p' .gitlab-ci.yml)
fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}
[ -n "$version" ] || fail '.gitlab-ci.yml has no line with ref: expected the version of iogauge there'
# Two jobs of a pipeline may stand in one directory; the second waits.
exec 9<.
flock 9 2>/dev/null || true

if [ "$(git -C iogauge rev-parse --verify --quiet "$version^{commit}" 2>/dev/null || echo none)" != \
    "$(git -C iogauge rev-parse --verify --quiet HEAD 2>/dev/null || true)" ] || [ ! -e iogauge/.git ]; then
    echo "setup: iogauge $version from $source"
    [ -e iogauge/.git ] || git clone --quiet --no-checkout "$source" iogauge ||
        fail "$source cannot be cloned: set IOGAUGE_SOURCE, or correct it in $PWD/setup"
    git -C iogauge fetch --quiet --tags "$source"
    git -C iogauge checkout --quiet --force --detach "$version" ||
        fail "$source has no version $version: correct ref in .gitlab-ci.yml"
fi
# The pipeline keeps what its steps leave in the checkout of this repository.
mkdir -p iogauge-out
[ -e iogauge/iogauge-out ] || ln -s ../iogauge-out iogauge/iogauge-out
[ "${1:-}" != --fetch ] || exit 0

export IOGAUGE_SITES="$PWD/sites" IOGAUGE_HOME="${IOGAUGE_HOME:-$PWD/.iogauge}"
iogauge/ci/setup
iogauge/ci/stack || true
