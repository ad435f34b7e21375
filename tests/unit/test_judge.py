"""From what a job left to a verdict: the guards that apply are asked, and none is forgotten."""

from dataclasses import replace

import pytest

from iogauge.core.measurement import (
    Metric,
    Quantity,
    Reference,
    ToolOutputError,
    Unsettled,
)
from iogauge.evidence import collect, model
from iogauge.judge import decide
from iogauge.judge.verdict import Verdict
from iogauge.node.lustre.file_layout import FileLayout, Layouts, Part
from iogauge.node.lustre.request import Layout
from iogauge.node.lustre.targets import StorageTarget
from iogauge.plan.case import Access, Computed, Verification
from iogauge.tools.ior.ior_output import parse_json
from support import stage as healthy
from support.extras import extras

PLAN = healthy.plan()
#: The options that fio had for its figures.
RANDOM_READ = """[rr]
ioengine=psync
direct=1
size=8m
directory=${IOG_DIR}/fio
group_reporting
refill_buffers=1
randrepeat=0
time_based=1
runtime=2
ramp_time=1
norandommap=1
sync=1
filename_format=$clientuid.$jobnum.$filenum
rw=randread
bs=4k
numjobs=2
"""
REFERENCES = {
    "write_bw": Reference(500.0, -0.1, None, "MiB/s", "run 1"),
    "read_iops": Reference(20000.0, -0.1, None, "ops/s", "run 1"),
}


@pytest.fixture
def found(tmp_path):
    return collect.collect(healthy.build(tmp_path / "stage"), PLAN, 0)


def judged(found, site=None, references=REFERENCES, plan=PLAN, tier="quick"):
    return decide.judge(
        plan, found, healthy.METRICS, references, site or extras(), tier
    )


def outputs(found, name, **change):
    """Evidence whose last output of a phase differs."""
    *rest, last = found.outputs[name]
    altered = replace(last, **change)
    return replace(found, outputs={**found.outputs, name: (*rest, altered)})


def test_every_guard_that_applies_is_asked(found):
    asked = {}
    for finding in judged(found).findings:
        asked.setdefault(finding.metric, []).append(finding.guard)
    assert {metric: sorted(set(names)) for metric, names in asked.items()} == {
        None: ["G15", "G19", "G20", "G8", "G9"],
        "write_bw": ["G17", "G18", "G2", "G22", "G4", "G5", "G6", "G8"],
        "read_iops": ["G1", "G17", "G18", "G22", "G3", "G4", "G6", "G8"],
    }


def test_without_a_reference_nothing_passes(found):
    decided = judged(found, references={"write_bw": REFERENCES["write_bw"]})
    assert decided.verdict is Verdict.UNREFERENCED
    assert [m.verdict for m in decided.metrics] == [Verdict.PASS, Verdict.UNREFERENCED]
    assert decided.reason.startswith("read_iops: ")
    assert decided.headline.startswith(
        "write_bw 540.8 MiB/s, read_iops 23183 ops/s: read_iops"
    )


@pytest.mark.parametrize(
    "change, verdict, reason, findings",
    [
        (
            {"refused": ("no room", "no inode")},
            Verdict.INVALID,
            "refused before a byte was written: no room",
            [],
        ),
        (
            {"occupied": "alice"},
            Verdict.CONTAMINATED,
            "nothing was measured: G19",
            ["G19"],
        ),
        ({"mismatch": "verify: bad"}, Verdict.INVALID, "G8", ["G8"]),
    ],
)
def test_a_case_without_figures_has_a_verdict(found, change, verdict, reason, findings):
    decided = judged(replace(found, **change))
    assert (decided.verdict, decided.metrics) == (verdict, ())
    assert decided.reason.startswith(reason)
    assert [finding.guard for finding in decided.findings] == findings


@pytest.mark.parametrize(
    "value, verdict, outcome",
    [(200.0, "PASS", "warn"), (1.0, "INVALID", "invalid"), (530.0, "PASS", None)],
)
def test_a_reference_far_below_its_ceiling(found, value, verdict, outcome):
    """A fifth of the ceiling is the least; a hundredth of one device proves nothing."""
    site = extras(topology={"source": "x", "devices": {"write": "2 GB/s"}})
    reference = replace(REFERENCES["write_bw"], value=value, lower=0.0)
    decided = judged(found, site, {**REFERENCES, "write_bw": reference})
    doubts = [one for one in decided.findings if one.guard == decide.REFERENCE]
    assert decided.metrics[0].verdict.value == verdict, decided.reason
    if outcome is None:
        assert doubts == []
        return
    assert [(one.metric, one.outcome.value) for one in doubts] == [
        ("write_bw", outcome)
    ]
    assert f"{value:.4g}" in doubts[0].saw and "ceiling" in doubts[0].demands
    assert doubts[0].remedy.startswith("Raise the reference")


def test_notes_and_what_a_tool_leaves_open_reach_the_verdict(found):
    """The outputs of both metrics are asked, each of its own quantity."""
    noted = outputs(
        found,
        "read",
        notes={"iops": "slow: n2"},
        unsettled={"iops": Unsettled(19000.0, "two turns differ")},
    )
    tight = replace(REFERENCES["read_iops"], value=23000.0, lower=-0.05)
    decided = judged(noted, references={**REFERENCES, "read_iops": tight})
    write, read = decided.metrics
    assert (write.verdict, read.verdict) == (Verdict.PASS, Verdict.UNSTABLE)
    assert read.reason.endswith("two turns differ: slow: n2")
    assert "slow" not in write.reason


def test_a_metric_that_is_only_recorded_needs_no_reference(found):
    """Unless no metric has any, or what was measured is not believed."""

    def of(references, seen=found, **site):
        settings = extras(**site) if site else extras()
        decided = decide.judge(
            PLAN,
            seen,
            healthy.METRICS,
            references,
            settings,
            "quick",
            recorded={"read_iops"},
        )
        return decided.verdict, [m.verdict for m in decided.metrics]

    one = {"write_bw": REFERENCES["write_bw"]}
    assert of(one) == (Verdict.PASS, [Verdict.PASS, Verdict.UNREFERENCED])
    assert of({}) == (
        Verdict.UNREFERENCED,
        [Verdict.UNREFERENCED, Verdict.UNREFERENCED],
    )
    worse = replace(REFERENCES["read_iops"], value=1000000.0)
    assert of({**one, "read_iops": worse})[0] is Verdict.FAIL
    limit = {"source": "x", "devices": {"read_iops": 20000}}
    assert of(one, topology=limit)[0] is Verdict.INVALID


@pytest.mark.parametrize(
    "asked, unlike",
    [
        (RANDOM_READ, ""),
        (
            RANDOM_READ.replace("size=8m\n", ""),
            "it says size=8m instead of no such option",
        ),
        ("[rr]\nrw=randread\nbs=8k\n", "it says bs=4k instead of bs=8k"),
        (
            "[rr]\ndirectory=${IOG_DIR}/x\n",
            "directory=/tmp/tb/fio instead of directory=/tmp/tb/x",
        ),
        (
            "[rr]\ndescription=${IOG_TOKEN}\n",
            "G22 tool: fio 3.33, read, repetition 1: it says description=nothing instead of description=t",
        ),
        ("[other]\nbs=4k\n", "it says bs=nothing instead of bs=4k"),
    ],
)
def test_fio_had_the_options_of_its_job_file(found, asked, unlike):
    write, read = PLAN.repeat
    read = replace(read, command=["fio", "r.fio"])
    plan = replace(PLAN, repeat=[write, read], inputs={"r.fio": asked})
    decided = judged(found, plan=plan)
    assert decided.metrics[1].verdict is (Verdict.INVALID if unlike else Verdict.PASS)
    assert unlike in decided.reason


@pytest.mark.parametrize(
    "said, unlike",
    [
        (" -G=1", ""),
        ("", "before the repetitions: it says 'nothing' instead of '-G=1'"),
        (" -G=2", "before the repetitions: it says '-G=2' instead of '-G=1'"),
    ],
)
def test_the_warm_up_alone_has_the_words_with_which_a_tool_checks(found, said, unlike):
    write, read = PLAN.repeat
    checked = replace(write, verifies=Verification(("-G=1",), "wrong"))
    (cold,) = found.cold["write"]
    warm_up = replace(cold, command=cold.command + said)
    seen = replace(found, cold={**found.cold, "write": (warm_up,)})
    decided = judged(seen, plan=replace(PLAN, repeat=[checked, read]))
    assert decided.metrics[0].verdict is (Verdict.INVALID if unlike else Verdict.PASS)
    assert unlike in decided.reason


def test_a_scenario_without_metrics_is_an_error(found):
    plan = healthy.plan(repeat=[replace(p, rates={}) for p in PLAN.repeat])
    with pytest.raises(ToolOutputError, match="promises no metric"):
        decide.judge(plan, found, (), {}, extras(), "quick")


# --- ceilings as references -----------------------------------------------------------------------

TOPOLOGY = {
    "source": "data sheet",
    "devices": {"write": "600 MB/s", "read_iops": 30000},
    "efficiency": {"read": 0.5, "write": 0.9},
}


def test_a_target_without_history_is_judged_by_its_ceiling(found):
    decided = judged(found, extras(topology=TOPOLOGY), references={})
    write, read = decided.metrics
    assert write.reference.value == pytest.approx(0.9 * 600e6 / 2**20)
    assert (
        write.reference.source
        == "90% of the ceiling 1 device(s) x 572 MiB/s (data sheet)"
    )
    assert write.verdict is Verdict.PASS
    assert (read.reference, read.verdict) == (None, Verdict.UNREFERENCED)


def test_expected_failures_of_a_case(found):
    slow = Reference(1e6, -0.1, None, "MiB/s", "x", "firmware bug")
    decided = judged(found, references={**REFERENCES, "write_bw": slow})
    assert (decided.verdict, decided.failed_as_expected) == (Verdict.FAIL, True)
    other = replace(REFERENCES["read_iops"], value=1000000000.0)
    decided = judged(found, references={"read_iops": other, "write_bw": slow})
    assert (decided.verdict, decided.failed_as_expected) == (Verdict.FAIL, False)
    assert not judged(found).failed_as_expected


# --- layouts, parts of an execution, what is computed ---------------------------------------------


TARGETS = tuple(
    StorageTarget(index=index, uuid=f"s-OST{index:04x}_UUID", active=True)
    for index in range(4)
)


def laid_out(found, *files):
    """Evidence of files with their storage targets, the same in both repetitions."""
    layouts = tuple(
        FileLayout(
            path=path,
            parts=(
                Part(
                    stripe_count=len(osts),
                    stripe_bytes=1 << 20,
                    objects=osts,
                    instantiated=True,
                ),
            ),
        )
        for path, osts in files
    )
    seen = tuple(
        model.Striping({}, Layouts(repetition=rep, files=layouts, total=len(layouts)))
        for rep in (1, 2)
    )
    opened = replace(healthy.VIEW, targets=TARGETS)
    return replace(found, striping=seen, opened=opened)


def test_a_record_has_the_layouts_of_all_repetitions(found):
    record = model.layout_of_record(laid_out(found, ("data", (2,))).striping)
    assert record == {
        "kinds": [
            {"stripe_count": 1, "stripe_bytes": 1 << 20, "pattern": "raid0", "files": 2}
        ],
        "files": 2,
        "looked_at": 2,
        "targets_hit": 1,
        "targets": [2],
    }


def test_the_layouts_of_every_repetition_count(found):
    plan = replace(PLAN, layout=Layout(stripe_count=2), shared_file=True)
    seen = laid_out(found, ("data", (0, 1)))
    wrong = laid_out(found, ("data", (2,))).striping[0]
    assert judged(seen, plan=plan).verdict is Verdict.PASS
    seen = replace(seen, striping=(wrong, seen.striping[1]))
    assert judged(seen, plan=plan).verdict is Verdict.INVALID


def test_a_warning_that_was_expected_is_none(found):
    warned = outputs(found, "write", warnings=("the file exists already",))
    assert judged(warned).verdict is Verdict.INVALID
    write, read = PLAN.repeat
    plan = replace(PLAN, repeat=[replace(write, expected="exists already"), read])
    assert judged(warned, plan=plan).verdict is Verdict.PASS
    other = outputs(found, "write", warnings=("the file exists already", "out of luck"))
    assert "out of luck" in judged(other, plan=plan).reason


def test_what_is_computed_of_two_metrics_is_judged_like_them(found):
    metrics = (*healthy.METRICS, Metric("share", "1"))
    computed = Computed(
        sources=("write_bw", "read_iops"),
        compute=lambda a, b: Quantity(b.value / a.value, "1"),
    )
    plan = replace(PLAN, computed={"share": computed})
    share = 23183.408296 / 540.8034
    references = {
        **REFERENCES,
        "share": Reference(share, -0.01, None, "1", "arithmetic"),
    }
    decided = decide.judge(plan, found, metrics, references, extras(), "quick")
    assert decided.verdict is Verdict.PASS, decided.reason
    assert decided.metrics[-1].samples == pytest.approx((share, share))
    warned = outputs(found, "write", warnings=("odd",))
    decided = decide.judge(plan, warned, metrics, references, extras(), "quick")
    assert [m.verdict for m in decided.metrics] == [
        Verdict.INVALID,
        Verdict.PASS,
        Verdict.INVALID,
    ]


def test_what_stands_by_the_nature_of_a_scenario_yields_to_the_site(found):
    standing = {"read_iops": Reference(1.0, 0.0, 0.0, "ops/s", "nature")}

    def verdict(references, unreferenced=""):
        decided = decide.judge(
            PLAN,
            found,
            healthy.METRICS,
            references,
            extras(),
            "quick",
            unreferenced,
            standing,
        )
        return decided.metrics[1].verdict

    assert verdict({}) is Verdict.FAIL
    assert verdict(REFERENCES) is Verdict.PASS
    assert verdict({}, "an entry that does not fit") is Verdict.FAIL


def test_parts_of_one_execution_are_judged_each_by_its_own_access(tmp_path):
    """IOR that writes and reads by itself, twice: four samples of each, and the read is suspect."""
    stage = healthy.build(tmp_path / "stage")
    text = (healthy.SAMPLES / "ior_i2.json").read_text()
    for rep in (1, 2):
        (stage / f"ior.{rep}.json").write_text(text)
        (stage / f"ior.{rep}.csv").write_text("")
    write = replace(
        PLAN.repeat[0],
        parse=lambda printed: parse_json(printed.result, printed.stdout),
        ranks=None,
        data_bytes=None,
        samples=2,
    )
    read = replace(
        write,
        name="reread",
        command=(),
        rates={"read_bw": ("read", "bw")},
        access=Access(direction="read"),
        within="write",
    )
    plan = replace(PLAN, repeat=[write, read], warm_up=False, tasks=2)
    (stage / "phases.tsv").write_text(
        "1\twrite\t0\t1.5\t2.5\tt\n2\twrite\t0\t1.5\t2.5\tt\n"
    )
    found = collect.collect(stage, plan, 0)
    metrics = (Metric("write_bw", "MiB/s"), Metric("read_bw", "MiB/s"))
    decided = decide.judge(
        plan, found, metrics, {}, extras(limits={"max_spread": "99 %"}), "quick"
    )
    assert [len(m.samples) for m in decided.metrics] == [4, 4]
    assert "G1:" not in decided.metrics[0].reason
    assert (
        "G1 client cache: buffered read, shifted by 0 of 1 node(s)"
        in decided.metrics[1].reason
    )
