# shellcheck shell=bash
# What the scripts of this folder share: where they are, how they speak, and that one at a time goes on.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." >/dev/null && pwd -P)
home=${IOGAUGE_HOME:-$root/.iogauge}
me=${0##*/}

say() { printf '%s: %s\n' "$me" "$*"; }
# With the status 1, unless a script has another.
fail() {
    printf '%s\n' "${@/#/$me: }" >&2
    exit "${failure:-1}"
}
# A script's first comment is its help.
usage() {
    sed -n '2,/^# shellcheck/{/^# shellcheck/d; s/^# \{0,1\}//; p}' "$root/ci/$me" >&2
    exit 2
}
# Two of a script at once would disturb each other. Some file systems have no locks: then both go on.
alone() {
    { mkdir -p "$home" && : >>"$home/$me.lock"; } 2>/dev/null || fail "you may not write in $home:" \
        "clone the project yourself, or set IOGAUGE_HOME to a directory of your own"
    exec 9>"$home/$me.lock"
    flock -n 9 2>/dev/null || { say "waiting for another ci/$me" && flock 9 2>/dev/null; } || true
}

# IOGAUGE_MIRROR=DIR: wheels, Spack and the sources come from DIR. It is the folder .airgap that ci/airgap has packed, or
# a source mirror of Spack. Spack looks at the mirrors in its own scopes (ci/install-spack).
if [ -n "${IOGAUGE_MIRROR:-}" ]; then
    IOGAUGE_MIRROR=$(cd -- "$IOGAUGE_MIRROR" && pwd -P) || fail "IOGAUGE_MIRROR is no directory"
    export IOGAUGE_MIRROR
    [ ! -d "$IOGAUGE_MIRROR/wheels" ] || export PIP_NO_INDEX=1 PIP_FIND_LINKS=$IOGAUGE_MIRROR/wheels
    if [ -d "$IOGAUGE_MIRROR/packages.git" ]; then
        GIT_CONFIG_VALUE_0=$(sed -n 's/^ *git: *//p' "$root/environments/scope/repos.yaml")
        export GIT_CONFIG_COUNT=1 GIT_CONFIG_VALUE_0 GIT_CONFIG_KEY_0="url.file://$IOGAUGE_MIRROR/packages.git.insteadOf"
    fi
fi
