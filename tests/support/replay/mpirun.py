"""Stand-in for ``mpirun`` of Open MPI, on nodes that are not there.

Nodes are those of the host file, else n1, n2 and so on; the first is this machine. A tool is run once and told
how many tasks there are (OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_SIZE). The suite's agent is run once as
well, and its answer copied for every node, each with a page cache of its own. So is server.sh: of the other
nodes' servers there is a socket that listens at 127.78.0.<number of the node>, and the file that says so.
"""

from __future__ import annotations

import json
import os
import sys

import figures

#: Network of the nodes, all of it on the loopback interface.
NETWORK = "127.78.0"


def conflict(text: str) -> None:
    """End as Open MPI does where it cannot place the tasks."""
    print(text, file=sys.stderr)
    sys.exit(1)


def place(tasks: int, hostfile: str | None, mapping: str | None) -> tuple[list[str], int]:
    """Names of the nodes that get tasks, and tasks on each."""
    slots: dict[str, int] = {}
    for line in figures.text_of(hostfile).splitlines() if hostfile else ():
        host, _, number = line.partition(" slots=")
        slots[host] = int(number)
    if mapping == "node":
        if not slots:
            figures.refuse("--map-by node without a host file: how many nodes are there?")
        per_node = -(-tasks // len(slots))
    elif mapping and mapping.startswith("ppr:") and mapping.endswith(":node"):
        per_node = int(mapping.split(":")[1])
    elif mapping is None:
        per_node = tasks
    else:
        figures.refuse(f"mpirun --map-by {mapping}")
    nodes = -(-tasks // per_node)
    if tasks % per_node:
        figures.refuse(f"{tasks} tasks, {per_node} on each node")
    hosts = list(slots)[:nodes] if slots else [f"n{number + 1}" for number in range(nodes)]
    if len(hosts) < nodes or any(slots.get(host, per_node) < per_node for host in hosts):
        conflict(f"There are not enough slots available in the system to satisfy the {tasks} slots")
    return hosts, per_node


def agent(command: list[str], hosts: list[str]) -> int:
    """Run the agent here, and copy its answer."""
    status = os.spawnvp(os.P_WAIT, command[0], command)
    if status != 0:
        return status
    out = command[-1]
    own = f"{out}.{os.uname().nodename}.json"
    answer = json.loads(figures.text_of(own))
    os.unlink(own)
    for host in hosts:
        mine = answer | {"host": host}
        if "cache_id" in mine:
            mine["cache_id"] += f"@{host}"
        figures.write(f"{out}.{host}.json", json.dumps(mine))
    return 0


def servers(command: list[str], hosts: list[str]) -> int:
    """Run server.sh here, and listen for the other nodes."""
    import socket
    import subprocess
    import time

    (script,) = (i for i, word in enumerate(command) if word.endswith("/server.sh"))
    out = command[script + 1]
    if hosts[0] != os.uname().nodename:
        figures.refuse(f"servers on {hosts[0]}, which is not this machine")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    while process.poll() is None and not os.path.exists(f"{out}.{hosts[0]}"):
        time.sleep(0.02)
    sockets = []
    for number, host in enumerate(hosts[1:] if process.poll() is None else (), start=2):
        sockets.append(socket.create_server((f"{NETWORK}.{number}", 0)))
        address, port = sockets[-1].getsockname()
        figures.write(f"{out}-{host}", f"{host} {address},{port} {os.getpid()}\n")
        os.replace(f"{out}-{host}", f"{out}.{host}")
    return process.wait()


def main(argv: list[str]) -> int:
    """Read mpirun's options; run the rest."""
    options: dict[str, str] = {}
    words = list(argv)
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option not in ("-np", "--hostfile", "--map-by", "--bind-to") or option in options:
            figures.refuse(f"mpirun {option}")
        options[option] = words.pop(0)
    tasks = int(options["-np"])
    hosts, per_node = place(tasks, options.get("--hostfile"), options.get("--map-by"))
    each_once = per_node == 1 and tasks == len(hosts)
    if "iogauge.job.agent" in words and each_once:
        return agent(words, hosts)
    if any(word.endswith("/server.sh") for word in words) and each_once:
        return servers(words, hosts)
    world = {"OMPI_COMM_WORLD_SIZE": str(tasks), "OMPI_COMM_WORLD_LOCAL_SIZE": str(per_node)}
    sys.stdout.flush()
    os.execvpe(words[0], words, os.environ | world)
