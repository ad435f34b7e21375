"""Sites: every mistake in a settings file is said, and one broken site does not disable the others."""

import copy
import os
import re
import socket
from types import SimpleNamespace

import jsonschema
import pytest
import yaml

from iogauge.cases import configuration
from iogauge.site import folders, settings
from iogauge.site import mistakes as mistakes_of
from support.stack import write_facts

GOOD = {
    "systems": [
        {
            "name": "good",
            "hostnames": ["good.*"],
            "partitions": [
                {
                    "name": "disk",
                    "scheduler": "local",
                    "launcher": "local",
                    "environs": ["env"],
                    "time_limit": "30m",
                    "max_jobs": 1,
                    "extras": {
                        "target": {"path": "/scratch", "type": "ext4"},
                        "node": {"cores": 4, "memory": "16 GiB"},
                        "scale": {"tasks_per_node": 2},
                        "limits": {
                            "case_bytes": "1 GiB",
                            "case_files": 100,
                            "phase_seconds": "2 s",
                            "tier": "quick",
                        },
                        "topology": {
                            "source": "data sheet",
                            "clients": {"nic": "100 Gbit/s"},
                            "servers": {"count": 2, "nic": "100 Gbit/s"},
                            "devices": {"read": "1 GB/s"},
                            "efficiency": {"read": 0.7, "write": 0.7},
                        },
                    },
                }
            ],
        }
    ],
    "environments": [{"name": "env", "target_systems": ["good"], "features": ["fio"]}],
}
PARTITION = "systems.0.partitions.0"
EXTRAS = f"{PARTITION}.extras"
NAMED = "systems.good.partitions.disk"
DELETE = object()


def changed(path, value, data=GOOD):
    data = copy.deepcopy(data)
    *parents, last = (int(part) if part.isdigit() else part for part in path.split("."))
    place = data
    for part in parents:
        place = place[part]
    if value is DELETE:
        del place[last]
    else:
        place[last] = value
    return data


def mistakes(data):
    return [str(mistake) for mistake in mistakes_of.find_mistakes("good", data)]


def test_a_sound_site_has_no_mistake():
    assert mistakes(GOOD) == []


def test_two_partitions_of_one_name_are_a_mistake():
    twice = [GOOD["systems"][0]["partitions"][0]] * 2
    (mistake,) = mistakes(changed("systems.0.partitions", twice))
    assert "found 2 partitions named" in mistake


def test_an_option_that_reframe_would_leave_out():
    slurm = changed(
        f"{PARTITION}.scheduler", "slurm", changed(f"{EXTRAS}.resources", ["bb"])
    )
    options = ["--bb=capacity={capacity}", "--gres=disk:{size}"]
    (mistake,) = mistakes(
        changed(f"{PARTITION}.resources", [{"name": "bb", "options": options}], slurm)
    )
    assert (
        f"{NAMED}.resources.bb: found '--gres=disk:{{size}}'; allowed: {{capacity}}"
        in mistake
    )


# --- detection ------------------------------------------------------------------------------------


def detecting(**extras):
    return changed(EXTRAS, {"detect": True, **extras})


@pytest.mark.parametrize(
    "extras, word",
    [
        ({"limits": 5}, "limits: found 5"),
        ({"node": {"cores": 0, "memory": "1 GiB"}}, "node.cores: found 0"),
    ],
)
def test_what_is_declared_beside_detection_must_be_right(extras, word):
    (mistake,) = mistakes(detecting(**extras))
    assert word in mistake


# --- loading --------------------------------------------------------------------------------------


@pytest.fixture
def sites(tmp_path, monkeypatch):
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IOGAUGE_CONFIGURATION", "restored afterwards")
    monkeypatch.delenv("IOGAUGE_GATE", raising=False)
    (tmp_path / "sites").mkdir()
    return tmp_path / "sites"


def put(sites, name, data=GOOD):
    (sites / name).mkdir()
    text = data if isinstance(data, str) else yaml.safe_dump(data).replace("good", name)
    (sites / name / "settings.yaml").write_text(text)


def systems(config):
    return {system["name"]: system for system in config["systems"]}


BROKEN = {
    "extras": (changed(f"{EXTRAS}.node.cores", 0), ["broken7"]),
    "hostnames": (changed("systems.0.hostnames", ["(", "good[0-9]"]), ["broken7"]),
    "schema": (changed(f"{PARTITION}.scheduler", DELETE), ["broken7"]),
    "yaml": ("systems: [", []),
    "duplicate": ("systems: []\nsystems: []\n", []),
    "no_mapping": ("systems: [5]\n", []),
    "no_environments": (changed("environments", DELETE), ["broken7"]),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_site_does_not_disable_the_others(sites, capsys, monkeypatch, kind):
    data, hosts = BROKEN[kind]
    monkeypatch.setattr(socket, "gethostname", lambda: "broken7")
    for name in ("alpha", "omega"):
        put(sites, name)
    put(sites, "broken", data)
    config = configuration.load(sites)
    assert "iogauge: site broken is disabled: " in capsys.readouterr().err
    stand_in = systems(config)["broken"]
    assert stand_in["hostnames"] == hosts
    (partition,) = stand_in["partitions"]
    assert "features" not in partition
    assert partition["extras"]["mistakes"]
    for name in ("alpha", "omega"):
        monkeypatch.setenv("RFM_SYSTEM", name)
        (named,) = configuration.load(sites)["systems"]
        assert named["partitions"][0]["features"] == ["o_direct", "target"]
        assert capsys.readouterr().err == ""
    jsonschema.Draft7Validator(mistakes_of.reframe_schema()).validate(config)
    for system in config["systems"]:
        for pattern in system["hostnames"]:
            re.compile(pattern)


@pytest.mark.parametrize("name", ["$(touch canary)", "a b", "a\nb"])
def test_a_state_directory_that_something_would_act_upon_is_refused(
    sites, tmp_path, monkeypatch, name
):
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path / name))
    with pytest.raises(SystemExit, match="IOGAUGE_HOME"):
        configuration.load(sites)


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        os.mkdir,
        lambda path: os.symlink("/dev/zero", path),
        lambda path: os.symlink("/no/such/file", path),
    ],
)
def test_a_site_whose_settings_are_no_file_is_named_and_not_waited_for(
    sites, capsys, make
):
    (sites / "broken").mkdir()
    file = sites / "broken" / folders.SETTINGS
    make(file)
    put(sites, "omega", yaml.safe_dump(GOOD).replace("good", "omega"))
    assert set(systems(configuration.load(sites))) == {"broken", "omega"}
    assert f"iogauge: site broken is disabled: {file}" in capsys.readouterr().err


def test_mistakes_in_the_references_disable_a_site(sites, capsys):
    put(sites, "alpha")
    (sites / "alpha" / "references.yaml").write_text("Ior: 5\n")
    config = configuration.load(sites)
    assert systems(config)["alpha"]["partitions"][0]["name"] == "broken"
    assert "Ior: found 5" in capsys.readouterr().err


def test_local_comes_last_and_common_is_no_site(sites):
    for name in ("zeta", "local", "alpha"):
        put(sites, name)
    put(sites, "common", "general:\n  - report_file: ${IOGAUGE_HOME}/r.json\n")
    config = configuration.load(sites)
    assert list(systems(config)) == ["alpha", "zeta", "local"]
    assert config["general"] == [{"report_file": str(sites.parent / "home" / "r.json")}]


def test_a_target_that_cannot_be_detected_disables_its_site(sites, capsys):
    put(sites, "alpha", detecting(target={"path": "/no/such/place"}))
    put(sites, "omega")
    config = configuration.load(sites)
    assert systems(config)["alpha"]["partitions"][0]["name"] == "broken"
    assert "mkdir it, or name another" in capsys.readouterr().err


# --- the selected system --------------------------------------------------------------------------


def system(*extras):
    partitions = [SimpleNamespace(extras=e, environs=[]) for e in extras]
    return SimpleNamespace(name="s", partitions=partitions)


@pytest.mark.parametrize(
    "extras, message",
    [
        ([{"mistakes": ["f: one", "f: two"]}], "has 2 mistake.*f: one\n.*f: two"),
        ([{"target": {}}, {"mistakes": ["one"]}], "has 1 mistake"),
        ([{}], "is no site of this suite"),
        ([], "is no site of this suite"),
    ],
)
def test_a_system_that_cannot_measure_ends_the_run(monkeypatch, extras, message):
    monkeypatch.setattr(configuration, "_SITES", {"s"})
    with pytest.raises(SystemExit, match=f"(?s)'s' .*{message}"):
        configuration.require_ready(system(*extras))


# --- the software stack ---------------------------------------------------------------------------


def stacked(*environments):
    environs = [
        SimpleNamespace(name=str(n), extras=e) for n, e in enumerate(environments)
    ]
    return SimpleNamespace(
        name="s", partitions=[SimpleNamespace(extras={"target": {}}, environs=environs)]
    )


def test_a_site_without_its_stack_cannot_run(monkeypatch):
    monkeypatch.setattr("sys.argv", ["reframe", "-c", "checks/", "-r"])
    monkeypatch.setattr(configuration, "_SITES", {"s"})
    with pytest.raises(SystemExit, match="spack -e x install"):
        configuration.require_ready(stacked({"not_installed": "spack -e x install"}))


def with_stack(name):
    data = copy.deepcopy(GOOD)
    data["environments"][0] = {
        "name": "env",
        "target_systems": ["good"],
        "extras": {"stack": name},
    }
    return data


def load_site(folder, data):
    (folder / "good").mkdir()
    (folder / "good" / "settings.yaml").write_text(yaml.safe_dump(data))
    (environment,) = configuration.load(folder)["environments"]
    return environment


@pytest.mark.parametrize("runs, features", [(False, ["fio"]), (True, [])])
def test_what_is_declared_of_a_stack_is_listed_until_it_is_built_and_does_not_run(
    tmp_path, monkeypatch, runs, features
):
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path / "home"))
    data = with_stack("absent")
    data["environments"][0]["features"] = ["fio"]
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "settings.yaml").write_text(yaml.safe_dump(data))
    read, _ = settings.read_site(tmp_path / "good", runs=runs)
    (environment,) = read["environments"]
    assert environment.get("features", []) == features
    assert "there is no" in environment["extras"]["not_installed"]


def test_an_environment_gets_what_its_stack_has_built(tmp_path, monkeypatch):
    monkeypatch.setenv("IOGAUGE_ROOT", str(tmp_path))
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path / "home"))
    write_facts(tmp_path / "environments" / "site" / ".spack-env")
    (tmp_path / "sites").mkdir()
    environment = load_site(tmp_path / "sites", with_stack("site"))
    ior = ["ior", "ior-mpiio", "mdtest"]
    assert environment["features"] == ["fio", *ior]
    command, proof = environment["prepare_cmds"]
    assert proof.startswith('[ "$?" -eq 0 ] || {')
    assert command == f". {tmp_path}/environments/site/.spack-env/activate.sh"
    assert environment["extras"]["installed"]["hashes"] == {
        "ior": "i",
        "fio": "f",
        "mpi": "m",
    }
