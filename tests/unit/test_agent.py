"""What runs on the nodes: look, open or refuse, empty the cache."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iogauge import agent, filesystem, workdir
from iogauge.filesystem import Mount, Quota, Space, View


@pytest.fixture(autouse=True)
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "stage").mkdir()
    monkeypatch.chdir(tmp_path / "stage")
    return tmp_path / "stage"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


def case(place: Path, **change: Any) -> str:
    mount = filesystem.find_mount(str(place))
    assert mount
    data = {
        "target": str(place),
        "type": mount.type,
        "source": mount.source,
        "session": "session",
        "host": "login",
        "case": "case",
        "held_bytes": 1 << 20,
        "files": 1,
        "max_fill": 1.0,
        "keep_free": 0.0,
        **change,
    }
    Path("case.json").write_text(json.dumps(data))
    return "case.json"


def opened() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("open.json").read_text())
    return found


def test_a_target_as_declared_is_opened(target: Path) -> None:
    assert agent.main(["open", case(target)]) == 0
    assert opened()["refused"] == []
    assert View.from_json(opened()["view"]).path == str(target)
    assert (Path(workdir.session_dir(str(target), "session")) / "case").is_dir()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"type": "lustre"}, "G9: "),
        ({"source": "elsewhere"}, "G9: "),
        ({"held_bytes": 1 << 60}, "G13: "),
        ({"keep_free": 1.0}, "G13: "),
        ({"max_fill": 0.0}, "G13: "),
        ({"files": 1 << 50}, "G14: "),
        ({"target": "/no/such/place"}, "/no/such/place"),
        ({"session": "../x"}, "is not a name"),
    ],
)
def test_a_target_that_will_not_do_is_refused(
    target: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], why: str
) -> None:
    assert agent.main(["open", case(target, **change)]) == agent.REFUSED == 3
    assert any(why in reason for reason in opened()["refused"])
    assert f"iogauge: refused: {opened()['refused'][0]}" in capsys.readouterr().err
    assert not list(target.iterdir())


def test_a_link_in_the_way_is_a_refusal(target: Path, tmp_path: Path) -> None:
    (target / "iogauge").symlink_to(tmp_path)
    assert agent.main(["open", case(target)]) == 3
    assert "symbolic links are not followed" in opened()["refused"][0]


def test_every_reason_of_a_refusal_is_said(target: Path) -> None:
    agent.main(["open", case(target, type="lustre", held_bytes=1 << 60)])
    assert [reason[:3] for reason in opened()["refused"]] == ["G9:", "G13"]


def test_a_quota_is_part_of_the_look() -> None:
    view = View(
        "h", "/s", Mount(1, "/s", "s", "lustre", ""), Space(100, 90, 0, 0), (Quota("u", 5, None),)
    )
    wanted = {
        "type": "lustre",
        "source": "s",
        "held_bytes": 10,
        "files": 1,
        "max_fill": 1,
        "keep_free": 0,
    }
    outcomes = {f.guard: f.outcome.value for f in agent.preflight(view, wanted)}
    assert outcomes == {"G9": "ok", "G13": "ok", "G14": "invalid"}


@pytest.mark.parametrize(
    ("script", "left"),
    [
        (
            'case "$3" in -u) echo "/m 100 0 300 - 5 0 20 -";; *) echo "/m 1 0 0 - 1 0 0 -";; esac',
            [200 << 10, None],
        ),
        ("exit 1", []),
    ],
)
def test_quotas_are_asked_of_lfs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, left: list[int | None]
) -> None:
    program = tmp_path / "lfs"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    quotas = agent._lustre_quotas("/m")
    assert [quota.bytes_left for quota in quotas] == left
    assert [quota.owner.split()[0] for quota in quotas] == ["user", "group"][: len(left)]


def answer(out: str) -> dict[str, Any]:
    (file,) = Path().glob("*.json")
    assert file.name == f"{out}.{os.uname().nodename}.json"
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_each_node_writes_its_view_to_a_file_of_its_own(target: Path) -> None:
    assert agent.main(["view", str(target), "view"]) == 0
    view = View.from_json(answer("view"))
    assert view.cache_id == filesystem.cache_id(str(target))
    assert (view.host, view.mount) == (os.uname().nodename, filesystem.find_mount(str(target)))


@pytest.fixture
def disk() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="iogauge-test-", dir="/var/tmp") as name:
        yield Path(name)


def test_each_node_writes_what_it_emptied(disk: Path) -> None:
    (disk / "sub").mkdir()
    for name in ("a", "sub/b"):
        (disk / name).write_bytes(b"x" * 8192)
    assert agent.main(["evict", str(disk), "evict.1"]) == 0
    done = answer("evict.1")
    assert (done["files"], done["bytes"], done["resident_before"]) == (2, 16384, 16384)


@pytest.mark.parametrize(
    "words", [[], ["open"], ["remove", "/"], ["view", "/"], ["evict", "/", "/", "/"]]
)
def test_other_words_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert agent.main(words) == 2
    assert "usage" in capsys.readouterr().err
