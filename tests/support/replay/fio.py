"""Stand-in for fio 3.33: a run on this node, a client of servers, and a server.

What is printed is recorded output of one fio, or of two servers, scaled to the figures of the case, to the
processes of the job and to the servers that answer. A layout leaves files that hold no data; reads need
them. The server listens and does nothing: what its clients would do is done here. Where Lustre's checksums
are off (``lctl`` beside this), reads go at ``read_iops_unchecked``.
"""

import json
import os
import re
import sys

import figures

#: Options of a job file that are replayed.
_KNOWN = frozenset(
    [
        "description",
        "directory",
        "filename_format",
        "unique_filename",
        "ioengine",
        "rw",
        "bs",
        "filesize",
        "nrfiles",
        "numjobs",
        "group_reporting",
        "fallocate",
        "disk_util",
        "iodepth",
        "direct",
        "refill_buffers",
        "randrepeat",
        "create_on_open",
        "time_based",
        "runtime",
        "verify",
        "verify_interval",
        "do_verify",
        "verify_state_save",
        "sync",
        "end_fsync",
        "norandommap",
    ]
)
#: Bytes a second that the processes of one node lay files out with.
_LAYOUT_BYTES_S = 1 << 30


class Job:
    """A job file with one section."""

    def __init__(self, name, options):
        self.name, self.options = name, options

    @classmethod
    def of(cls, file):
        head, *lines = figures.text_of(file).split()
        options = dict(line.split("=", 1) for line in lines)
        for name in ("description", "directory"):
            options[name] = re.sub(
                r"\$\{(\w+)\}", lambda match: os.environ[match[1]], options[name]
            )
        if unknown := options.keys() - _KNOWN:
            figures.refuse(f"fio job option {sorted(unknown)[0]}")
        for name, value in (
            ("group_reporting", "1"),
            ("nrfiles", "1"),
            ("unique_filename", "0"),
        ):
            if options.get(name) != value:
                figures.refuse(f"fio job without {name}={value}")
        return cls(head.strip("[]"), options)

    @property
    def processes(self):
        return int(self.options["numjobs"])

    @property
    def block(self):
        return figures.size(self.options["bs"])

    @property
    def writes(self):
        return self.options["rw"] == "write"

    def files(self, client):
        """Sizes by path of all processes' files on a node."""
        form = self.options["filename_format"].replace("$clientuid", client)
        names = [
            form.replace("$jobnum", str(n)).replace("$filenum", "0")
            for n in range(self.processes)
        ]
        size = figures.size(self.options["filesize"])
        return {os.path.join(self.options["directory"], name): size for name in names}


class Rate:
    """What one node did: operations in so many milliseconds."""

    def __init__(self, operations, milliseconds, block):
        self.operations, self.milliseconds, self.block = operations, milliseconds, block

    @property
    def iops(self):
        return self.operations * 1000 / self.milliseconds


def checksums_off():
    """Whether Lustre's checksums are switched off on this node."""
    if not figures.striped():
        return False
    figures.of_this_case()
    import parameters

    return "0" in parameters.checksums().values()


def rates(job, nodes, output):
    """What each node did; together they meet the figure."""
    if job.writes:
        done = job.processes * figures.size(job.options["filesize"])
        milliseconds = max(1, round(done * 1000 / _LAYOUT_BYTES_S))
        return [Rate(done // job.block, milliseconds, job.block)] * nodes
    if job.options["rw"] != "randread" or "time_based" not in job.options:
        figures.refuse(f"fio rw={job.options['rw']}")
    seconds = int(job.options["runtime"].removesuffix("s"))
    name = "read_iops_unchecked" if checksums_off() else "read_iops"
    total = figures.figure(name) * figures.share(output) * seconds
    # Nodes differ by a hundredth, and their mean is that of the figure.
    parts = [
        1 + 0.01 * (2 * i / (nodes - 1) - 1) if nodes > 1 else 1.0 for i in range(nodes)
    ]
    return [
        Rate(round(total * part / nodes), seconds * 1000, job.block) for part in parts
    ]


def scaled(recorded, job, rate, processes):
    """A recorded entry at another rate; the direction is the job's."""
    entry = json.loads(json.dumps(recorded))
    moving, still = entry["read"], entry["trim"]
    moved = rate.operations * rate.block
    bytes_s = moved * 1000 // rate.milliseconds
    latency_ns = processes * 1e9 / rate.iops
    slower = latency_ns / moving["lat_ns"]["mean"]
    for times in (moving["clat_ns"], moving["lat_ns"]):
        for key in ("min", "max", "mean", "stddev"):
            times[key] = times[key] * slower
        times["N"] = rate.operations
        percentile = times.get("percentile", {})
        times["percentile"] = {
            key: round(value * slower) for key, value in percentile.items()
        }
        if not percentile:
            del times["percentile"]
    moving |= {
        "io_bytes": moved,
        "io_kbytes": moved // 1024,
        "bw_bytes": bytes_s,
        "bw": bytes_s // 1024,
        "iops": round(rate.iops, 6),
        "runtime": rate.milliseconds,
        "total_ios": rate.operations,
    }
    entry["read"], entry["write"] = (still, moving) if job.writes else (moving, still)
    entry["job_runtime"] = rate.milliseconds * processes
    return entry


def local(job, output):
    """Output of a run on this node."""
    found = json.loads(figures.text_of(f"{figures.SAMPLES}/fio_randread.json"))
    (rate,) = rates(job, 1, output)
    entry = scaled(found["jobs"][0], job, rate, job.processes)
    found |= {"global options": {}, "jobs": [entry], **figures.dates()}
    entry |= {"jobname": job.name, "job options": job.options}
    return found


def remote(job, clients, output):
    """Output of a client: an entry for each server, and their sum."""
    found = json.loads(figures.text_of(f"{figures.SAMPLES}/fio_two_servers.json"))
    one, _, every = found["client_stats"]
    done = rates(job, len(clients), output)
    entries = []
    for (address, port), rate in zip(clients, done, strict=True):
        entry = scaled(one, job, rate, job.processes)
        entry |= {
            "jobname": job.name,
            "job options": job.options,
            "hostname": address,
            "port": port,
        }
        entries.append(entry)
    total = Rate(sum(rate.operations for rate in done), done[0].milliseconds, job.block)
    together = scaled(every, job, total, job.processes * len(clients))
    together |= {"hostname": clients[-1][0], "port": clients[-1][1]}
    found |= {
        "global options": {},
        "client_stats": [*entries, *([together] if entries[1:] else [])],
        "timestamp": figures.dates()["timestamp"],
        "time": figures.dates()["time"],
    }
    return found


def use_files(job, clients):
    """Lay the files out, or find them; ends the program where they are missing."""
    if not os.path.isdir(job.options["directory"]):
        print(f"fio: {job.options['directory']} is not a directory")
        sys.exit(1)
    sizes = {
        path: size for client in clients for path, size in job.files(client).items()
    }
    if not job.writes:
        if lacks := figures.missing(sizes):
            figures.refuse(f"reading {lacks}, which was not laid out")
        return
    for folder in {os.path.dirname(path) for path in sizes}:
        os.makedirs(folder, exist_ok=True)
    figures.make(sizes, anew=True)


def serve(where):
    """Listen until killed."""
    import signal
    import socket

    address, port = where.removeprefix("ip:").split(",")
    with socket.create_server((address, int(port))):
        print(f"fio: server listening on {address},{port}", flush=True)
        signal.pause()


def answers(client):
    """Whether a server can be reached; one that cannot is left out, as fio does."""
    import socket

    try:
        socket.create_connection(client, timeout=5).close()
    except OSError as error:
        print(f"fio: connect: {error.strerror}")
        return False
    return True


def main(argv):
    """Run a job here or on servers, or be a server."""
    options = {}
    clients = []
    jobs = []
    for word in argv:
        name, _, value = word.partition("=")
        if name == "--client":
            # A file with an address on each line, or one server.
            servers = (
                figures.text_of(value).split() if os.path.isfile(value) else [value]
            )
            for server in servers:
                address, _, port = server.partition(",")
                clients.append((address, int(port)))
        elif name in (
            "--server",
            "--output",
            "--output-format",
            "--verify",
            "--verify_interval",
        ):
            options[name] = value
        elif word.startswith("-"):
            figures.refuse(f"fio {word}")
        else:
            jobs.append(word)
    if "--server" in options:
        serve(options["--server"])
    if options.get("--output-format") != "json" or len(set(jobs)) != 1:
        figures.refuse(f"fio {' '.join(argv)}")
    if len(jobs) != 1:
        figures.refuse(f"{len(jobs)} job files, expected one for all clients")
    job, output = Job.of(jobs[0]), options["--output"]
    reached = [client for client in clients if answers(client)]
    use_files(job, [address for address, _ in reached] if clients else [""])
    found = remote(job, reached, output) if clients else local(job, output)
    figures.write(output, json.dumps(found, indent=1))
    return 0
