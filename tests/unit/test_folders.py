"""Where sites are: the search path, several sites of one name, several that claim a host."""

import pytest

from iogauge.cases import configuration
from iogauge.site import folders, settings, stack

SETTINGS = """\
systems:
  - name: {name}
    hostnames: ["{host}"]
    partitions:
      - name: default
        scheduler: local
        launcher: local
        environs: [tools]
        max_jobs: 1
        time_limit: 1h
        extras:
          target: {{path: /scratch, type: lustre}}
          node: {{cores: 1, memory: 1 GiB}}
          scale: {{tasks_per_node: 1}}
          limits: {{case_bytes: 1 GiB, case_files: 1, phase_seconds: 1 s, tier: daily}}
environments:
  - {{name: tools, target_systems: [{name}], extras: {{stack: {name}}}}}
"""


def site(parent, name, host="nowhere"):
    folder = parent / name
    folder.mkdir(parents=True)
    (folder / "settings.yaml").write_text(SETTINGS.format(name=name, host=host))
    return folder


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A folder of a user's own sites, and the folder of the configuration."""
    own, project = (
        tmp_path / "repository" / "sites",
        tmp_path / "clone" / "site-configs",
    )
    own.mkdir(parents=True)
    project.mkdir(parents=True)
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IOGAUGE_CONFIGURATION", str(project))
    monkeypatch.setenv("IOGAUGE_ROOT", str(tmp_path / "clone"))
    monkeypatch.setenv("IOGAUGE_SITES", str(own))
    return own, project


def test_own_sites_come_first_and_local_last(path):
    own, project = path
    mine, theirs, local = (
        site(own, "mine"),
        site(project, "a-published"),
        site(project, "local"),
    )
    assert folders.site_dirs() == path
    assert folders.site_folders(*folders.site_dirs()) == [mine, theirs, local]
    assert folders.site_dir("mine") == mine
    assert folders.site_dir("a-published") == theirs


@pytest.mark.parametrize(
    "value, said",
    [
        ("sites", "'sites' is not an absolute path"),
        ("/nowhere/sites", "'/nowhere/sites' is not a directory"),
        ("{own}/mine", "is a site itself; name the folder above it, {own}"),
    ],
)
def test_a_folder_that_holds_no_sites_is_named(path, monkeypatch, value, said):
    own, _ = path
    site(own, "mine")
    monkeypatch.setenv("IOGAUGE_SITES", f"{own}:{value.format(own=own)}")
    with pytest.raises(SystemExit) as error:
        folders.site_dirs()
    assert said.format(own=own) in str(error.value)


def test_two_sites_of_one_name_are_a_mistake_of_both(path, capsys):
    own, project = path
    first, second = site(own, "twin"), site(project, "twin")
    site(own, "mine")
    for folder in (first, second):
        (mistake,) = settings.read_site(folder)[1]
        assert f"2 sites named twin: {first}, {second}" in str(mistake)
    loaded = configuration.load(project)
    assert [system["name"] for system in loaded["systems"]] == ["mine", "twin"]
    assert "mistakes" in loaded["systems"][1]["partitions"][0]["extras"]
    assert "site twin is disabled" in capsys.readouterr().err


def test_two_sites_that_claim_the_host_are_told(path, capsys, monkeypatch):
    own, project = path
    one, two = site(own, "one", ".*"), site(project, "another", ".*")
    site(project, "local", ".*")
    assert folders.sites_of_host([one, two, project / "local"], "login1") == [one, two]
    configuration.load(project)
    said = capsys.readouterr().err
    assert f"{one}, {two}. The first is taken" in said
    assert "--system=one" in said
    monkeypatch.setenv("RFM_SYSTEM", "another")
    configuration.load(project)
    assert capsys.readouterr().err == ""


def test_a_spack_environment_lies_beside_the_sites_or_in_the_project(path, tmp_path):
    own, _ = path
    mine, other = site(own, "mine"), site(own, "other")
    beside = own.parent / "environments" / "mine"
    beside.mkdir(parents=True)
    assert folders.spack_environments(mine, "mine") == beside.parent
    assert (
        folders.spack_environments(other, "other")
        == tmp_path / "clone" / "environments"
    )
    assert stack.stacks([mine, other], "mine", "") == [str(beside)]
    assert stack.stacks([mine, other], "other", "") == ["other"]
