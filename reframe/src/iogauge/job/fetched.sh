#!/bin/sh
# Run a tool and record how many bytes its process fetched from storage, as the kernel counts them.
#
#   fetched.sh OUT COMMAND...      writes OUT.<host>.<pid>; the exit status is the command's
#
# A shell's /proc/PID/io includes the reads of children that it waited for (proc(5), read_bytes).

# shellcheck source-path=SCRIPTDIR source=background.sh
. "${0%/*}/background.sh"

out=$1
shift
iog_end_on_signal
iog_run "$@"
status=$?
while read -r key value; do
    [ "$key" != read_bytes: ] || echo "$value" >"$out.$(uname -n).$$"
done 2>/dev/null </proc/$$/io
exit "$status"
