"""Names of disks and file systems that one case of a node has at a time."""

from __future__ import annotations

import os

import pytest

from iogauge.workspace.alone import alone
from iogauge.workspace.lock import Occupied

#: fsname@MGS of a site with two servers, two InfiniBand networks and TCP: longer than a socket's address.
LUSTRE = (
    "file system lustre01@172.16.100.1@o2ib10,172.16.101.1@o2ib11,10.10.100.1@tcp10"
    ":172.16.100.2@o2ib10,172.16.101.2@o2ib11,10.10.100.2@tcp10"
)


@pytest.mark.parametrize("name", [LUSTRE, "file system fe80::\udcff", "disk 8:0"])
def test_a_name_is_held_by_one_at_a_time(name: str) -> None:
    def hold() -> None:
        with alone([name], wait_s=0, pause=lambda _: False, say=print):
            pass

    with (
        alone([name, f"{name}'"], wait_s=0, pause=lambda _: False, say=print),
        pytest.raises(Occupied) as refused,
    ):
        hold()
    assert f"of waiting {name} of this node" in str(refused.value)
    assert f"process {os.getpid()} of user " in str(refused.value)
    hold()
