"""Settings of the Lustre client that a case changes come back, whatever happens in between."""

import json
import os

import pytest

from iogauge.node import mounts
from iogauge.node.lustre import checksums
from iogauge.node.lustre.checksums import TunableError
from support.project import TESTS
from support.shell import completed

STAND_INS = TESTS / "support" / "lustre"


@pytest.fixture
def client(tmp_path, monkeypatch):
    """A client of four storage targets, with its state in a directory; settings are kept in ``keep``."""
    (tmp_path / "state").mkdir()
    monkeypatch.setenv("LFS_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LCTL_USER", "0")
    monkeypatch.setenv("PATH", f"{STAND_INS}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "keep"


def switched():
    done = completed(["lctl", "get_param", "osc.*-osc-ffff*.checksums"])
    found = checksums.parse_params(done.stdout)
    assert len(found) == 4, done
    return set(found.values())


@pytest.mark.slow
def test_what_was_found_is_put_back(client):
    assert switched() == {"1"}
    checksums.switch_checksums(False, "10.0.0.1@tcp:/lustre", client)
    assert switched() == {"0"}
    assert len(checksums.restore(client)) == 4
    assert switched() == {"1"}
    assert list(client.iterdir()) == []


@pytest.mark.slow
def test_a_second_change_does_not_forget_what_was_there_first(client):
    """Off, on, and killed: the next job finds the first value, not the second."""
    completed(["lctl", "set_param", "osc.*.checksums=0"], check=True)
    checksums.switch_checksums(True, "*", client)
    checksums.switch_checksums(False, "*", client)
    checksums.switch_checksums(True, "*", client)
    assert switched() == {"1"}
    checksums.restore(client)
    assert switched() == {"0"}


def test_what_was_found_is_on_disk_before_anything_changes(client, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(values):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(checksums, "_write", killed)
        checksums.switch_checksums(False, "*", client)
    (file,) = client.iterdir()
    assert set(json.loads(file.read_text())["found"].values()) == {"1"}
    assert checksums.restore(client) == []  # nothing had changed


def test_an_ordinary_user_is_told_so_and_nothing_changes(client, monkeypatch):
    monkeypatch.setenv("LCTL_USER", "1")
    with pytest.raises(
        TunableError, match=r"is '1' after lctl set_param .*=0 .*only root"
    ):
        checksums.switch_checksums(False, "*", client)
    monkeypatch.setenv("LCTL_USER", "0")
    assert switched() == {"1"}


def test_another_nodes_settings_are_left_alone(client):
    checksums.switch_checksums(False, "*", client)
    (file,) = client.iterdir()
    file.rename(client / "elsewhere.any.json")
    assert checksums.restore(client) == []
    assert switched() == {"0"}


def test_a_damaged_file_is_named_and_kept(client):
    client.mkdir()
    file = client / f"{os.uname().nodename}.lustre.json"
    file.write_text("{")
    with pytest.raises(TunableError, match=rf"{file}.*remove the file"):
        checksums.restore(client)
    assert file.exists()


def test_without_lctl_the_message_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TunableError, match="lctl is not on PATH"):
        checksums.switch_checksums(False, "*", tmp_path)


@pytest.mark.parametrize(
    "source, name",
    [
        ("10.0.0.1@tcp:/scratch", "scratch"),
        ("10.0.0.1@o2ib:10.0.0.2@o2ib:/work/sub", "work"),
        ("/dev/sdb1", "*"),
        ("host:/a-name-that-is-too-long", "*"),
        ("", "*"),
    ],
)
def test_the_file_systems_name(source, name):
    assert mounts.fsname_of(source) == name
