"""Stand-in for ``mpirun`` of Open MPI, on nodes that are not there.

Nodes are those of the host file, else n1, n2 and so on; the first is this machine. A tool is run once and told
how many tasks there are (OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_SIZE). The suite's agent is run once as
well, and what it notes is copied for every node, each with a page cache of its own. Of the other nodes' servers
there is a socket that listens at 127.78.0.<number of the node>, and the note that says so.
"""

import json
import os
import sys

import figures

#: Network of the nodes, all of it on the loopback interface.
NETWORK = "127.78.0"


def conflict(text):
    """End as Open MPI does where it cannot place the tasks."""
    print(text, file=sys.stderr)
    sys.exit(1)


def place(tasks, hostfile, mapping):
    """Names of the nodes that get tasks, and tasks on each."""
    slots = {}
    for line in figures.text_of(hostfile).splitlines() if hostfile else ():
        host, _, number = line.partition(" slots=")
        slots[host] = int(number)
    if mapping == "node":
        if not slots:
            figures.refuse(
                "--map-by node without a host file: how many nodes are there?"
            )
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
    hosts = (
        list(slots)[:nodes] if slots else [f"n{number + 1}" for number in range(nodes)]
    )
    if len(hosts) < nodes or any(
        slots.get(host, per_node) < per_node for host in hosts
    ):
        conflict(
            f"There are not enough slots available in the system to satisfy the {tasks} slots"
        )
    return hosts, per_node


def agent(command, hosts):
    """Run the agent in a copy of the stage, and note for every node what it notes there."""
    import socket
    import subprocess
    import tempfile
    import time

    attends = "attend" in command
    with tempfile.TemporaryDirectory() as place:
        for name in os.listdir():
            if not name.startswith("seen."):
                os.symlink(os.path.abspath(name), os.path.join(place, name))
        words = list(command)
        if attends:
            words[words.index("attend") + 1] = place
        process = subprocess.Popen(words, cwd=place, stdin=subprocess.DEVNULL)
        own = os.path.join(place, f"seen.{os.uname().nodename}.jsonl")
        while process.poll() is None and not (attends and '"view"' in noted(own)):
            time.sleep(0.02)
        sockets = []
        notes = [json.loads(line) for line in noted(own).splitlines()]
        for number, host in enumerate(hosts, start=1):
            with open(f"seen.{host}.jsonl", "a", encoding="utf-8") as file:
                for at, what, value in notes:
                    mine = value
                    if isinstance(value, dict) and "host" in value:
                        mine = value | {"host": host}
                    if isinstance(value, dict) and "cache_id" in value:
                        mine = mine | {"cache_id": f"{value['cache_id']}@{host}"}
                    if what == "server" and number > 1:
                        sockets.append(socket.create_server((f"{NETWORK}.{number}", 0)))
                        address, port = sockets[-1].getsockname()
                        mine = [f"{address},{port}", os.getpid()]
                    file.write(json.dumps([at, what, mine]) + "\n")
        return process.wait()


def noted(file):
    try:
        with open(file, encoding="utf-8") as text:
            return text.read()
    except OSError:
        return ""


def main(argv):
    """Read mpirun's options; run the rest."""
    options = {}
    words = list(argv)
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if (
            option not in ("-np", "--hostfile", "--map-by", "--bind-to")
            or option in options
        ):
            figures.refuse(f"mpirun {option}")
        options[option] = words.pop(0)
    tasks = int(options["-np"])
    hosts, per_node = place(tasks, options.get("--hostfile"), options.get("--map-by"))
    each_once = per_node == 1 and tasks == len(hosts)
    if "job/agent.sh" in " ".join(words) and each_once:
        return agent(words, hosts)
    world = {
        "OMPI_COMM_WORLD_SIZE": str(tasks),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(per_node),
    }
    sys.stdout.flush()
    os.execvpe(words[0], words, os.environ | world)
