"""A site's own repository, carried to where there is no network: what is refused, and the whole way with Spack."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from iogauge_extras.newsite import writing
from support.project import copied
from support.shell import completed

pytestmark = pytest.mark.slow

GIT = [
    "git",
    "-c",
    "user.name=t",
    "-c",
    "user.email=t@t",
    "-c",
    "advice.detachedHead=false",
]


def text_of(*words, cwd, **more):
    """What a command printed, with its status."""
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **more},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.fixture
def repository(tmp_path):
    """The repository of the site `mine`, with this project, as it is, in the version v1 that it pins."""
    top = tmp_path / "storage"
    suite = copied(top / "iogauge")
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["commit", "-q", "-m", "v1"],
        ["tag", "v1"],
    ):
        completed([*GIT, *words], cwd=suite, check=True)
    (top / "sites/mine").mkdir(parents=True)
    (top / "sites/mine/settings.yaml").write_text(
        "systems: [{name: mine, hostnames: ['.*'], partitions: [{name: scratch, environs: [tools]}]}]\n"
        "environments: [{name: tools, extras: {stack: mine}}]\n"
    )
    writing.write_repository(top, "mine", "scratch", False)
    pin(top, "v1")
    return top


def pin(top, version):
    pipeline = top / ".gitlab-ci.yml"
    pipeline.write_text(re.sub(r"ref: \S+", f"ref: {version}", pipeline.read_text()))


def pack(top, *words, **more):
    return text_of(
        "iogauge/ci/airgap", "pack", *words, "environments/mine", cwd=top, **more
    )


def test_an_environment_that_is_no_repositorys_is_not_carried(repository, tmp_path):
    folder = tmp_path / "elsewhere/environments/mine"
    folder.mkdir(parents=True)
    (folder / "spack.yaml").write_text("spack: {}\n")
    command = [
        repository / "iogauge/ci/airgap",
        "pack",
        tmp_path / "carried.tar.gz",
        folder,
    ]
    status, said = text_of(*command, cwd=tmp_path)
    assert status == 1
    assert f"{tmp_path}/elsewhere/iogauge is not {repository}/iogauge" in said


def test_a_folder_that_is_no_cache_is_not_carried(repository, tmp_path):
    status, said = pack(repository, "--cache", tmp_path, tmp_path / "carried.tar.gz")
    assert status == 1
    assert (
        f"{tmp_path}: expected a directory that ci/build-stack --cache has filled"
        in said
    )


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("cached", [False, True], ids=["sources", "cache"])
def test_a_sites_repository_is_built_without_a_network(
    spack, builtin, repository, tmp_path, cached
):
    alone = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "alone"]
    status, said = text_of(*alone, "true", cwd=tmp_path)
    if status:
        pytest.skip(f"no network name space with a loopback: {said.strip()}")
    # The two programs that nothing can be measured without; the others take minutes more.
    manifest = repository / "environments/mine/spack.yaml"
    manifest.write_text(
        manifest.read_text().replace("+io500+darshan", "~io500~darshan")
    )
    words = []
    if cached:
        words = ["--cache", tmp_path / "cache"]
        push = ["iogauge/ci/build-stack", "--unsigned", *words, "environments/mine"]
        status, said = text_of(*push, cwd=repository)
        if status and "All fetchers failed" in said:
            pytest.skip("no mirror with the sources, and no network to fetch them")
        assert status == 0, said[-3000:]
    status, said = pack(repository, *words, tmp_path / "carried.tar.gz")
    if status and re.search(
        "some sources could not be had|No matching distribution", said
    ):
        pytest.skip(f"sources or wheels are not here: {said[-300:]}")
    assert status == 0, said[-3000:]
    # On the other side neither this machine's Spack nor its settings are known.
    there = tmp_path / "below/a/longer/path"
    home = tmp_path / "home"
    home.mkdir()
    path = ":".join(
        p for p in os.environ["PATH"].split(":") if not (Path(p) / "spack").exists()
    )
    known = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    bare = ["env", "-i", f"PATH={path}", f"HOME={home}"]
    bare += [f"{name}=1" for name in known]
    there.mkdir(parents=True)
    for name in ("carried.tar.gz", "carried.tar.gz.sha256"):
        (tmp_path / name).rename(there / name)
    printed = "\n".join(said.splitlines()[-3:])
    status, said = text_of(*alone, *bare, "bash", "-ec", printed, cwd=there)
    assert status == 0, said[-3000:]
    assert bool(re.search(r"\bior@4\.0\.0 configure", said)) != cached, said[-3000:]
    assert re.search(
        r"^check_stack: stack [0-9a-f]{12}; its facts: ", said, re.MULTILINE
    ), said[-3000:]
    # The repository is whole: its own two commands, and the programs that were built.
    use = "./setup && . ./activate && command -v ior && iogauge --version"
    status, said = text_of(*alone, *bare, "sh", "-c", use, cwd=there)
    assert status == 0, said
    assert f"{there}/environments/mine/.spack-env/view/bin/ior" in said
    assert re.search(r"^iogauge \d+\.\d+\.\d+ ", said, re.MULTILINE), said
