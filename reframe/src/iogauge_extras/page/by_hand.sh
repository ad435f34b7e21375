#!/usr/bin/env bash
# The commands of the cases of this bundle, to be run by hand on any machine. They need no iogauge.
#
#   bash commands.sh                      list the cases
#   bash commands.sh DIRECTORY CASE...    run cases, by number, on the storage that holds DIRECTORY
#
# A case writes its data into a new directory below DIRECTORY, and removes it in the end. What the tools print goes
# into a new directory results.XXXXXX where you stand. A launcher is a function "tasks": change it to your nodes.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
start=$PWD

refuse() {
    echo "commands.sh: $*" >&2
    exit 2
}

needs() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || refuse "this case needs $program, and PATH has none"
    done
}

# What a fio client needs: a server on each node.
servers() {
    [ -s "$here/servers" ] ||
        refuse "start 'fio --server' on $1 nodes, and write their addresses into $here/servers, one a line"
}

# Make a new directory for the data, and one for the results with files of a raw folder that the tools read.
begin() {
    local file raw=$here/$1
    shift
    IOG_REP=0 IOG_TOKEN=by-hand
    own=$(mktemp -d -- "$target/iogauge-bundle.XXXXXX")
    trap 'rm -rf -- "$own"' EXIT
    IOG_DIR=$own/data
    mkdir -- "$IOG_DIR"
    cd -- "$(mktemp -d -- "$start/results.XXXXXX")"
    for file in "$@"; do cp -- "$raw/$file" .; done
    export IOG_DIR IOG_REP IOG_TOKEN
    echo "case $number: data in $IOG_DIR, results in $PWD"
}

run() {
    local name=$1
    shift
    echo "$name.$IOG_REP: $*"
    "$@" >"$name.$IOG_REP.out" 2>"$name.$IOG_REP.err" && return
    tail -n 5 -- "$name.$IOG_REP.err" >&2
    refuse "case $number: $name failed, see $PWD/$name.$IOG_REP.err"
}

repeat() {
    for ((IOG_REP = $1; IOG_REP <= $2; IOG_REP++)); do "$3"; done
}

empty() {
    find "$IOG_DIR" -mindepth 1 -delete
}

# Reads must come from the storage. Do the same on every other node.
drop_caches() {
    sync
    if ! echo 3 2>/dev/null >/proc/sys/vm/drop_caches; then
        echo "commands.sh: only root can drop the page cache: what is read next may come from memory" >&2
    fi
}

main() {
    if [ $# = 0 ]; then
        sed -n 's/^# \(case [0-9].*\)/\1/p' "${BASH_SOURCE[0]}"
        exit
    fi
    [ $# -gt 1 ] || refuse "name a directory and at least one case: bash commands.sh DIRECTORY 1"
    [ -n "$1" ] && [ -d "$1" ] && [ -w "$1" ] || refuse "'$1' is no directory that you may write to"
    target=$(cd -- "$1" && pwd -P)
    [ "$target" != / ] || refuse "the root directory is refused: name a directory on the storage"
    shift
    for number in "$@"; do
        declare -F "case_$number" >/dev/null || refuse "case '$number': expected a number of the list, without arguments"
    done
    for number in "$@"; do ("case_$number"); done
}
