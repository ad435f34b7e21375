"""Stripes that the MPI library is asked for by hints: what it made of them is read back.

Neither this machine's MPI nor its file system knows stripes. A program in the place of IOR does what a library with
Lustre would do: it asks for the stripes of the hints before the file is made.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml

from e2e.rig import Rig
from e2e.test_scenarios import run, striped

pytestmark = pytest.mark.needs_ior

_OBEYS = (
    'lfs setstripe -c "$IOR_HINT__MPI__stripe_width" -S "$IOR_HINT__MPI__stripe_size" "$IOG_DIR" >&2\n'
    'exec "$real" "$@"'
)


@pytest.mark.parametrize(
    ("program", "verdict", "saw"),
    [
        (_OBEYS, "UNREFERENCED", "1 file(s) as asked"),
        ('exec "$real" "$@"', "INVALID", "data has 1 stripe(s); 1 of 1 are not as asked"),
    ],
    ids=["obeyed", "ignored"],
)
def test_the_layout_of_hints_is_read_back(
    make_rig: Callable[..., Rig], program: str, verdict: str, saw: str
) -> None:
    rig = striped(make_rig, sweeps={"stripe_counts": [1, 4], "striping_hints": ["1 MiB"]})
    file = rig.site / "settings.yaml"
    data = yaml.safe_load(file.read_text())
    data["environments"][0]["extras"] = {"mpi": "ompio4"}
    rig.write_settings(data)
    rig.program("ior", program)
    record = run(rig, "-n", "^StripeHints").record
    assert record["verdict"] == verdict, record["reason"]
    assert "IOR_HINT__MPI__stripe_size=1048576" in record["commands"][0]
    said = [f["saw"] for f in record["findings"] if f["guard"] == "G10"]
    assert any(saw in one for one in said), said
    rig.assert_clean()
