#!/bin/sh
# Stand-in for job/agent.sh: the agent of a job sees what a Lustre client shows, see agent.py.

python=$1
shift
exec "$python" "${0%/*}/../agent.py" "$@"
