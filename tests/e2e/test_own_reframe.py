"""The checks inside a centre's own ReFrame configuration, in the form of those at CSCS: ``reframe -C theirs.py -c checks/ -r``."""

import copy
import json

import pytest

from support.web import served

pytestmark = pytest.mark.needs_fio


def configuration(rig, url):
    """Several systems, environments for all of them, modes, and logs that go elsewhere; nothing of ours is complete."""
    login = {
        "name": "login",
        "scheduler": "local",
        "launcher": "local",
        "time_limit": "10m",
        "environs": ["builtin"],
        "max_jobs": 50,
    }
    normal = {
        "name": "normal",
        "scheduler": "local",
        "launcher": "local",
        "environs": ["builtin", "PrgEnv-ce"],
        "max_jobs": 1000,
        "extras": {"cn_memory": 870000},
        "features": ["ce", "remote", "uenv"],
        "resources": [{"name": "memory", "options": ["--mem={mem_per_node}"]}],
        "devices": [{"type": "gpu", "arch": "sm_90", "num_devices": 4}],
    }
    systems = [
        {"name": name, "hostnames": [name], "partitions": [login, normal]}
        for name in ("daint", "eiger")
    ]
    environments = [
        {"name": "builtin", "cc": "cc", "features": ["builtin"]},
        {"name": "PrgEnv-ce", "features": ["cpe", "prgenv", "mpi"]},
    ]
    handlers = [
        {
            "type": "filelog",
            "basedir": str(rig.base / "theirs"),
            "prefix": "%(check_system)s/%(check_partition)s",
            "level": "info",
            "format": "%(check_info)s|%(check_perf_var)s=%(check_perf_value)s|%(check_perf_unit)s",
        },
        {"type": "httpjson", "url": url, "level": "info", "extras": {"site": "cscs"}},
    ]
    return {
        "systems": copy.deepcopy(systems),
        "environments": environments,
        "modes": [{"name": "production", "options": ["--strict"]}],
        "logging": [{"perflog_multiline": True, "handlers_perflog": handlers}],
        "general": [{"check_search_recursive": True}],
    }


def run(rig, configuration, *words, **extra):
    """ReFrame with that configuration and no other; references are in a folder of the centre's."""
    file = rig.base / "theirs.py"
    file.write_text(
        f"import json\nsite_configuration = json.loads({json.dumps(configuration)!r})\n"
    )
    (rig.base / "sites").mkdir(exist_ok=True)
    extra |= {"RFM_CONFIG_PATH": "", "IOGAUGE_SITES": str(rig.base / "sites")}
    common = [
        "-C",
        str(file),
        "--system=daint",
        "-c",
        "checks/",
        "-n",
        "FioRandomRead%block=128KiB",
    ]
    return rig.reframe(*common, *words, **extra)


def test_each_thing_that_is_missing_is_named_and_then_it_measures(make_rig):
    rig = make_rig()
    declared = rig.settings()["systems"][0]["partitions"][0]["extras"]
    with served() as server:
        theirs = configuration(rig, server.url)
        (_, normal), (_, tools) = (
            theirs["systems"][0]["partitions"],
            theirs["environments"],
        )
        refused = run(rig, theirs, "-r")
        assert refused.rc == 1 and "docs/own-reframe.md" in refused.out
        normal["extras"] |= {"target": declared["target"], "limitz": {}}
        refused = run(rig, theirs, "-r")
        for key in (
            "limitz: found an unknown key (did you mean limits?)",
            "scale: this key is missing",
        ):
            assert f"daint:normal.extras.{key}" in refused.out, refused.out
        del normal["extras"]["limitz"]
        normal["extras"] |= {key: declared[key] for key in ("node", "limits")}
        normal["extras"]["scale"] = {"tasks_per_node": 2}
        refused = run(rig, theirs, "-r")
        for key in ("features", "time_limit", "environs"):
            assert f"daint:normal.{key}: found" in refused.out, refused.out
        assert refused.records == [] and "Traceback" not in refused.out

        normal["features"] += ["target", "o_direct"]
        normal["time_limit"] = "10m"
        tools["features"] += ["fio"]
        measured = run(rig, theirs, "-r")
        assert measured.record["verdict"] == "UNREFERENCED", measured.out
        assert measured.record["system"] == "daint"
        log = rig.base / "theirs" / "daint" / "normal" / "FioRandomRead.log"
        assert "read_bw=" in log.read_text()
        assert {json.loads(body)["site"] for _, _, body in server.got} == {"cscs"}

        # A gate stays one: nothing proven is no pass, and a listing beside it is a slip.
        assert run(rig, theirs, "-r", IOGAUGE_GATE="1").rc == 1
        assert run(rig, theirs, "-l", IOGAUGE_GATE="1").rc == 2
        references = rig.base / "sites" / "daint"
        references.mkdir()
        (references / "references.yaml").write_text(
            "$sources: {FioRandomRead: a test}\n"
            "FioRandomRead: {'daint:normal': {read_bw: [0.01, -0.5, null, MiB/s], read_iops: [0.1, -0.5, null, ops/s]}}\n"
        )
        passed = run(rig, theirs, "-r", IOGAUGE_GATE="1")
    assert (passed.rc, passed.record["verdict"]) == (0, "PASS"), passed.out
    rig.assert_clean()
