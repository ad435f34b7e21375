#!/bin/sh
# Stand-in for job/agent.sh: the agent of a job sees data in files that hold none, see agent.py.

python=$1
shift
exec "$python" "${0%/*}/../agent.py" "$@"
