"""Dry runs whose job scripts are kept: sites made up here, schedulers that are not here, the published sites.

``reframe --dry-run`` writes the job script of every case and runs none. Fixture ``dry_run`` gives the cases of a
dry run by its name; tests of several modules share them.
"""

import copy
import os
import re
import sys
from functools import partial
from pathlib import Path

from e2e.rig import ROOT
from support.golden import Case

TOOLS = ("fio", "io500", "ior", "ior-mpiio", "mdtest")
#: Scheduler, launcher, nodes, tasks on each, type of the target.
MADE_UP = {
    "workstation": ("local", "mpirun", 1, 2, "ext4"),
    "cluster-srun": ("squeue", "srun", 4, 8, "lustre"),
    "cluster-mpirun": ("squeue", "mpirun", 4, 8, "lustre"),
}
#: Scheduler, launcher, nodes.
SCHEDULERS = {
    "pbspro": ("pbspro", "mpiexec", 4),
    "pbs-openmpi": ("pbs", "mpirun", 4),
    "flux": ("flux", "mpirun", 1),
}
#: Published sites whose documents print commands.
PUBLISHED = ("azure-managed-lustre", "oist-saion")

_VARIED = ("Burst", "Steady", "AccessMatrix", "TaskScaling", "RandomRead")
_FEW = "^(IorPosix%files=per-process%order=sequential%cache=direct|MdtestEasy|RandomRead%.*4KiB%span=all)"
#: A stand-in for Flux's Python bindings, without which ReFrame does not load its backend.
_FLUX = str(ROOT / "tests" / "support" / "flux")


def settings(rig, site):
    """Settings of a made-up site, with all sweeps and rights."""
    scheduler, launcher, nodes, tasks, fstype = MADE_UP[site]
    data = rig.settings()
    (partition,) = data["systems"][0]["partitions"]
    partition |= {
        "scheduler": scheduler,
        "launcher": launcher,
        "env_vars": [],
        "time_limit": "1h",
    }
    if scheduler != "local":
        partition["access"] = ["--partition=compute"]
    partition["extras"] = {
        "target": {"path": "/scratch", "type": fstype},
        "node": {"cores": tasks, "memory": "64 GiB"},
        "scale": {"nodes": nodes, "tasks_per_node": tasks},
        "limits": {
            "case_bytes": "64 GiB",
            "case_files": 320_000,
            "phase_seconds": "30 s",
            "repetitions": 3,
            "tier": "daily",
        },
        "topology": {
            "source": "made up",
            "servers": {"count": 4, "nic": "100 Gbit/s"},
            "targets": 8,
        },
        "sweeps": {
            "tasks_per_node": [1, tasks],
            "servers": [1, 4],
            "stripe_counts": [1, 8],
            "stripe_sizes": ["1 MiB", "4 MiB"],
            "aggregators": [2, 4],
            "tasks_per_client": [tasks],
            "file_sizes": ["2 GB"],
            "striping_hints": ["2 MiB"],
        },
        "failover": {"command": "true", "after": "10 s"},
        "rights": ["lustre-checksums"],
        "baseline": {"partition": "other", "checks": ["TaskScaling"]},
    }
    data["systems"][0]["partitions"].append(
        {**copy.deepcopy(partition), "name": "other"}
    )
    del data["systems"][0]["partitions"][1]["extras"]["baseline"]
    library = {"darshan": "/opt/darshan/lib/libdarshan.so", "mpi": "ompio4"}
    library["wrf_io"] = "/opt/wrf/share/wrf-io/wrf_header.txt"
    data["environments"][0] |= {
        "extras": library,
        "features": [*TOOLS, "ior-hdf5", "ior-ncmpi"],
    }
    return data


def schedule(rig, scheduler, launcher, nodes, **partition):
    """Dry-run three cases on a partition of a scheduler; what Flux is asked goes to the rig's file ``asked``."""
    data = rig.settings()
    (settings,) = data["systems"][0]["partitions"]
    settings |= {
        "scheduler": scheduler,
        "launcher": launcher,
        "env_vars": [],
        "time_limit": "1h",
    }
    settings |= partition
    settings["extras"] |= {
        "target": {"path": "/scratch", "type": "lustre", "striping": "none"},
        "node": {"cores": 8, "memory": "64 GiB"},
        "scale": {"nodes": nodes, "tasks_per_node": 8},
        "sweeps": {"tasks_per_client": [8]},
        "cases": {},
    }
    settings["extras"]["limits"] |= {
        "case_bytes": "64 GiB",
        "case_files": 320_000,
        "phase_seconds": "1 s",
    }
    rig.write_settings(data)
    path = os.pathsep.join([_FLUX, str(ROOT / "reframe" / "src")])
    words = ("-c", "checks/", "--dry-run", "-n", _FEW)
    return rig.reframe(*words, PYTHONPATH=path, FLUX_ASKED=str(rig.base / "asked"))


def cases_of(rig, run):
    """Cases of a dry run, from their stage directories. What has no job, as derived checks may, is skipped."""
    assert run.rc == 0, run.out
    run.shows_no_pass()
    found = []
    for case in run.cases:
        stage = Path(case["stagedir"])
        if not (stage / "rfm_job.sh").exists():
            continue
        files = [*stage.glob("*.fio"), *stage.glob("hosts.txt")]
        found.append(
            Case(
                partition=case["partition"],
                environ=case["environ"],
                title=case["display_name"],
                hash=case["hashcode"],
                nodes=case["nodes"],
                tasks=case["num_tasks"],
                script=_normalised((stage / "rfm_job.sh").read_text(), rig),
                inputs={file.name: file.read_text() for file in files},
            )
        )
    return found


def _normalised(text, rig):
    """A script without what is this machine's or this run's."""
    python = re.escape(f"{Path(sys.executable).parent}/python")
    text = re.sub(rf"{python}[\d.]*(?=\s)", "@PYTHON@", text)
    text = text.replace(f"/stage/{rig.stage.name}/", "/stage/@SESSION@/")
    text = text.replace(str(rig.home), "@HOME@")
    text = text.replace(str(rig.base / "reframe"), "@ROOT@/reframe")
    text = text.replace(str(ROOT), "@ROOT@")
    return re.sub(
        r"/iogauge/[^/\s]+/[^/\s]+/(?=[A-Z])", "/iogauge/@USER@/@SESSION@/", text
    )


def _of_made_up_site(make_rig, site):
    rig = make_rig(tools=TOOLS)
    rig.write_settings(settings(rig, site))
    return cases_of(
        rig, rig.reframe("-c", "checks/", "--dry-run", "--system=rig:default")
    )


def _of_acceptance(make_rig, site):
    """The sizes of a tier: shared and pinned files, on a cluster and on one node."""
    rig = make_rig(tools=TOOLS)
    data = settings(rig, site)
    data["systems"][0]["partitions"][0]["extras"]["tiers"] = {
        "acceptance": {"case_bytes": "1 TiB", "repetitions": 3}
    }
    rig.write_settings(data)
    names = "IorPosix%files=shared%order=sequential|TaskScaling%"
    words = ("-c", "checks/", "--dry-run", "--system=rig:default", "--mode=acceptance")
    return cases_of(rig, rig.reframe(*words, "-n", names, "-T", "derived"))


def _of_scheduler(make_rig, name):
    rig = make_rig(tools=TOOLS)
    access = ["-q storage", "-l place=scatter:excl"] if name.startswith("pbs") else []
    return cases_of(rig, schedule(rig, *SCHEDULERS[name], access=access))


def _of_published_site(make_rig, site):
    """The published variants of a site."""
    rig = make_rig()
    words = ["--system", site, "-c", "checks/", "--dry-run"]
    words += [w for name in _VARIED for w in ("-S", f"{name}.variant=published")]
    words += ["-n", "^(Burst|Steady|AccessMatrix%|TaskScaling%|RandomRead%)"]
    return cases_of(
        rig, rig.reframe(*words, RFM_CONFIG_PATH=str(ROOT / "site-configs"))
    )


#: What makes each dry run, by its name.
DRY_RUNS = {
    **{site: partial(_of_made_up_site, site=site) for site in MADE_UP},
    **{
        f"acceptance-{site}": partial(_of_acceptance, site=site)
        for site in ("workstation", "cluster-srun")
    },
    **{name: partial(_of_scheduler, name=name) for name in SCHEDULERS},
    **{
        f"published-{site}": partial(_of_published_site, site=site)
        for site in PUBLISHED
    },
}
