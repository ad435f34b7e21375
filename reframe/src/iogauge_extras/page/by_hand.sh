#!/usr/bin/env bash
# The commands of the cases of this bundle, to be run by hand on any machine. They need no iogauge.
#
#   bash commands.sh                      list the cases
#   bash commands.sh DIRECTORY CASE...    run cases, by number, on the storage that holds DIRECTORY
#
# A case writes its data into a new directory below DIRECTORY, and removes it in the end. What the tools print goes
# into a new directory results.XXXXXX where you stand. LAUNCHER='mpirun -np 8' starts the tasks of all cases so.
set -eo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
start=$PWD

refuse() {
    echo "commands.sh: $*" >&2
    exit 2
}

# Run the job script in a raw folder with the functions below: its tools are run, what observes them is left out.
job() {
    local script=$here/$1/rfm_job.sh ours='^(iog_|\}|    |export [^=]*=)'
    raw=$here/$1
    [ -f "$script" ] || refuse "case $number: its job script is no longer kept"
    ! grep -E 'iog_phase .*(iog_do|iogauge\.job\.agent)' "$script" | grep -qvE 'iog_phase (facts|look|evict)-' ||
        refuse "case $number cannot be run by hand: iogauge itself makes its load"
    own=$(mktemp -d -- "$target/iogauge-bundle.XXXXXX")
    trap 'rm -rf -- "$own"' EXIT
    cd -- "$(mktemp -d -- "$start/results.XXXXXX")"
    export IOG_REP=0 IOG_TOKEN=by-hand IOG_DIR=$own/data
    mkdir -- "$IOG_DIR"
    echo "case $number: data in $IOG_DIR, results in $PWD"
    grep -vE "$ours|^#|^\. |^$" "$script" | sed 's/^/not run, it is of the site: /' || true
    # shellcheck disable=SC1090
    . <(grep -E "$ours" "$script" | grep -v '^export IOG_')
}

iog_open() { :; }
iog_agents() { :; }
iog_sample() { :; }
iog_layouts() { :; }
iog_verify() { :; }
iog_at_close() { :; }

iog_reset() {
    find "$IOG_DIR" -mindepth 1 -delete
}

iog_repeat() {
    for ((IOG_REP = $1; IOG_REP <= $2; IOG_REP++)); do "$3"; done
}

# A fio client needs a server on each node.
iog_client() {
    [ -s "$here/servers" ] ||
        refuse "start 'fio --server' on the nodes, and write their addresses into $here/servers, one a line"
    iog_phase "$1" fio --output-format=json --output="$3" --client="$here/servers" "$2"
}

iog_phase() {
    local name=$1 launcher=() words file n
    shift
    case $name in
        facts-* | look-*) return ;;
        evict-*)
            drop_caches
            return
            ;;
    esac
    words=("$@")
    # The launcher stands before what observes the tasks, their command behind it.
    for ((n = 0; n < $#; n++)); do
        [[ ${words[n]} == */witness.sh ]] || continue
        launcher=("${words[@]:0:n-1}")
        words=("${words[@]:n+3}")
        [ "${words[0]}" != --sync ] || words=("${words[@]:2}")
        break
    done
    [ ${#launcher[@]} = 0 ] || [ -z "$LAUNCHER" ] || read -ra launcher <<<"$LAUNCHER"
    for file in "${launcher[@]:0:1}" "${words[0]}"; do
        command -v -- "$file" >/dev/null || refuse "case $number needs $file, and PATH has none"
    done
    for file in "${words[@]}"; do
        [ ! -f "$raw/$file" ] || cp -- "$raw/$file" .
        [[ $file != *.fio ]] || [ -f "$file" ] || refuse "case $number: the job file $file of $name was not kept"
    done
    name=$name.$IOG_REP
    words=("${launcher[@]}" "${words[@]}")
    echo "$name: ${words[*]}"
    "${words[@]}" >"$name.out" 2>"$name.err" && return
    tail -n 5 -- "$name.err" >&2
    refuse "case $number: $name failed, see $PWD/$name.err"
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
