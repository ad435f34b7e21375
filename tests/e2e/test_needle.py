"""Needles for real: real fio on real files, a part that is slow, and the verdict that names it.

Lustre is not real: ``lfs`` and ``lctl`` are stand-ins (tests/support/lustre). fio's own ``rate`` gives every
probe a speed that does not hang on what else this machine does; one test has a throttled device instead.
"""

import os
import re

import pytest

from e2e.rig import ROOT, verdict_of

STAND_INS = ROOT / "tests" / "support" / "lustre"
pytestmark = [pytest.mark.needs_fio, pytest.mark.slow]

#: fio with a job file of the needle whose sections all get a rate, which its output does not tell; ``slow`` may change one of them.
PACED = r"""
job=${@: -1}
case $job in
    write.fio | read.fio | create.fio)
        pace=rate=80m
        [ "$job" != create.fio ] || pace=rate_iops=1000
        sed -E "s/^\[.*\]$/&\n$pace/; $slow" "$job" >"paced-$job"
        set -- "${@:1:$#-1}" "paced-$job"
        set -o pipefail
        "$real" "$@" | sed -E '/"rate(_iops)?" : "/d'
        exit
        ;;
esac
exec "$real" "$@"
"""
HEALTHY = "slow=" + PACED
SLOW_TARGET = (
    r"""
case ${@: -1} in write.fio) slow='s/(\[ost0002\]\nrate=)80m/\18m/' ;; esac
"""
    + PACED
)


#: What all meet who are alike.
REFERENCES = {
    **{f"{way}_slowest": [1.0, -0.5, None, "1"] for way in ("write", "read")},
    **{f"{way}_median": [1, -0.9, None, "MiB/s"] for way in ("write", "read")},
}


@pytest.fixture
def rig(make_rig):
    """A rig with four storage targets of two servers."""
    made = make_rig(
        declared={"striping": "lustre"},
        limits={
            "case_bytes": "64 MiB",
            "phase_seconds": "12 s",
            "repetitions": 3,
            "max_deviation": "50 %",
        },
        topology={
            "source": "made up",
            "servers": {"count": 2, "nic": "100 GB/s"},
            "targets": 4,
        },
    )
    made.write_references({"TargetNeedle": REFERENCES})
    return made


def run(rig):
    """Measure the targets with the stand-ins on PATH."""
    state = rig.base / "lfs"
    state.mkdir(exist_ok=True)
    path = os.pathsep.join([str(rig.bin), str(STAND_INS), rig.environment()["PATH"]])
    own = {"LFS_STATE": str(state), "LFS_SERVERS": "2", "PATH": path}
    return rig.run("-n", "TargetNeedle", timeout=300, **own)


def of(done, metric):
    (found,) = (m for m in done.record["metrics"] if m["name"] == metric)
    return dict(found)


def test_a_slow_target_is_named(rig):
    """The site's limit stands in for a reference of the slowest."""
    rig.write_references(
        {"TargetNeedle": {n: m for n, m in REFERENCES.items() if "median" in n}}
    )
    rig.program("fio", SLOW_TARGET)
    done = run(rig)
    done.never_passed("FAIL|reference")
    assert done.verdict == "FAIL"
    slowest = of(done, "write_slowest")
    assert (verdict_of(slowest), slowest["reference"]["source"]) == (
        "FAIL",
        "limits.max_deviation",
    )
    assert slowest["reference"]["lower"] == -0.5
    reason = slowest["reason"]
    # The disk's share of a transfer is the machine's; the program itself makes this target ten times slower.
    assert re.search(r"ost0002: .* MiB/s, \d\d?% of the others beside it", reason), (
        reason
    )
    assert "measured again 9 times" in reason
    rounds = of(done, "write_median")["rounds"]
    assert [len(one) for one in rounds] == [4] * 3 + [3] * 9
    assert not any(f"ost000{other}" in reason for other in (0, 1, 3))
    # The reads are those of alike targets.
    for healthy in ("write_median", "read_median", "read_slowest"):
        assert of(done, healthy)["verdict"] == "PASS", done.out
    said = {
        f["guard"]: f["outcome"] for f in done.record["findings"] if f["metric"] is None
    }
    warned = [
        f
        for f in done.record["findings"]
        if f["guard"] in ("G10", "G12") and f["outcome"] != "ok"
    ]
    assert not warned, warned
    assert said["G11"] == "ok", [
        f for f in done.record["findings"] if f["guard"] == "G11"
    ]
    rig.assert_clean()


def test_a_target_that_fails(rig):
    """One of four cannot be written to."""
    rig.program(
        "fio",
        'case ${@: -1} in write.fio) rm -r "$IOG_DIR/ost0003" ;; esac\n' + HEALTHY,
    )
    run(rig).never_passed("ost0003")
