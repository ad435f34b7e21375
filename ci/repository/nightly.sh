#!/usr/bin/env bash
# A run of every night, and its alarm to the receivers of sites/SITE/settings.yaml (iogauge/docs/pipeline.md).
# nightly.crontab or iogauge-SITE.timer starts it; a pipeline in GitLab needs neither. Arguments go to `iogauge run`.
set -uo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")" || exit 2
# shellcheck source=/dev/null
. ./activate
(cd sites && iogauge clean)
mkdir -p iogauge-out
rm -f iogauge-out/sessions
IOGAUGE_SESSIONS=$PWD/iogauge-out/sessions iogauge run --confirm --system=SITE --mode="${IOGAUGE_MODE:-daily}" "$@"
mapfile -t sessions <iogauge-out/sessions
iogauge alarm --send --expect=SITE:PARTITION "${sessions[@]}"
