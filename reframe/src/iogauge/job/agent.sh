#!/bin/sh
# Start an agent in an environment of its own: what stands between a tool and the kernel does not stand between the agent and
# the kernel.
#
#   agent.sh PYTHON COMMAND...      the commands are in agent.py
#
# What the caller preloads is handed on under other names, for the agent to report (node/between.py).

export IOG_LD_PRELOAD="${LD_PRELOAD:-$IOG_LD_PRELOAD}" IOG_LD_AUDIT="${LD_AUDIT:-$IOG_LD_AUDIT}"
unset LD_PRELOAD LD_AUDIT
python=$1
shift
exec "$python" -I "${0%/*}/start.py" "$@"
