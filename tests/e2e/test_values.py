"""Measured values are the tool's own, to the last digit, and only a reference decides PASS."""

import csv
import json
import statistics

import pytest

from e2e.rig import GENEROUS, MIB


def fio_job(file):
    text = file.read_text()
    return json.loads(text[text.index("{") :])["jobs"][0]


def ior_result(file, access):
    results = json.loads(file.read_text())["tests"][0]["Results"]
    (only,) = [r for r in results if r["access"] == access]
    return only


def mdtest_rate(file, row):
    """Mean of a row of mdtest's first table, read with no more than a split."""
    return _mean(
        file.read_text().split("SUMMARY rate")[1].split("SUMMARY time")[0], row
    )


def mdtest_seconds(file, row):
    """Mean of a row of mdtest's second table."""
    return _mean(file.read_text().split("SUMMARY time")[1], row)


def _mean(table, row):
    (line,) = [x for x in table.splitlines() if x.strip().startswith(row)]
    _maximum, _minimum, mean, _deviation = line.split()[-4:]
    return float(mean)


def with_sync(value, seconds, file):
    """A rate over the seconds of an execution and those of the sync after it, from what is noted of its first task."""
    execution = file.name.removesuffix(".err")
    (words,) = [
        line.split()
        for noted in file.parent.glob("tasks.*")
        for line in noted.read_text().splitlines()
        if line.startswith((f"{execution} 0 ", f"{execution} - "))
    ]
    return value * seconds / (seconds + float(words[4]) - float(words[3]))


def check(run, check_name, expected, exact=0):
    """A record, and ReFrame's own report, hold exactly these samples, units and medians."""
    (record,) = [r for r in run.records if r["check"] == check_name]
    (case,) = [c for c in run.cases if c["display_name"] == record["case"]]
    assert {m["name"] for m in record["metrics"]} == set(expected)
    for metric in record["metrics"]:
        unit, samples = expected[metric["name"]]
        assert metric["unit"] == unit
        assert metric["samples"] == pytest.approx(samples, rel=exact)
        assert metric["median"] == statistics.median(metric["samples"])
        value, *_, reported_unit, _result = case["perfvalues"][
            f"rig:default:{metric['name']}"
        ]
        assert (value, reported_unit) == (metric["median"], unit)


@pytest.fixture(scope="module")
def fio_run(make_module_rig):
    # The figures that all else rests on come from the command as users start it.
    rig = make_module_rig(limits={"repetitions": 2}, cold=True)
    rig.write_references(GENEROUS)
    # Three, so that the median is not the mean.
    three = ("-S", "FioRandomRead.repetitions=3")
    run = rig.run("-n", "FioRandomRead%block=4", *three, "--keep-stage-files")
    rig.assert_clean()
    return run


@pytest.mark.needs_fio
def test_fio_random_read_values(fio_run):
    (stage,) = (fio_run.stage / "rig/default/tools").glob("FioRandomRead_*")
    reads = [fio_job(stage / f"fio-randread.{rep}.json")["read"] for rep in (1, 2, 3)]
    check(
        fio_run,
        "FioRandomRead",
        {
            "read_iops": ("ops/s", [r["iops"] for r in reads]),
            "read_bw": ("MiB/s", [r["bw_bytes"] / MIB for r in reads]),
        },
    )
    # The two figures are two views of one measurement.
    for read in reads:
        assert read["iops"] * 4096 == pytest.approx(read["bw_bytes"], rel=0.01)


@pytest.fixture(scope="module")
def mpi_run(make_module_rig):
    rig = make_module_rig(
        tools=("ior", "mdtest"),
        limits={"repetitions": 2, "case_bytes": "96 MiB", "case_files": 12800},
    )
    run = rig.run(
        "-n",
        "IorPosix%files=shared%order=sequential%cache=buffered",
        "-n",
        "MdtestHard",
        "--keep-stage-files",
    )
    rig.assert_clean()
    return run


@pytest.mark.needs_ior
@pytest.mark.slow
def test_ior_values(mpi_run):
    (stage,) = (mpi_run.stage / "rig/default/tools").glob("IorPosix_*")

    def bandwidths(access):
        files = [stage / f"ior-{access}.{rep}.json" for rep in (1, 2)]
        return [ior_result(file, access)["bwMiB"] for file in files]

    check(
        mpi_run,
        "IorPosix",
        {
            "write_bw": ("MiB/s", bandwidths("write")),
            "read_bw": ("MiB/s", bandwidths("read")),
        },
    )


@pytest.mark.needs_ior
@pytest.mark.slow
def test_mdtest_values(mpi_run):
    stage = mpi_run.stage / "rig/default/tools/MdtestHard"

    def synced(name, row):
        return [
            with_sync(
                mdtest_rate(stage / f"{name}.{rep}.out", row),
                mdtest_seconds(stage / f"{name}.{rep}.out", row),
                stage / f"{name}.{rep}.err",
            )
            for rep in (1, 2)
        ]

    read = [mdtest_rate(stage / f"read.{rep}.out", "File read") for rep in (1, 2)]
    check(
        mpi_run,
        "MdtestHard",
        {
            "create_rate": ("ops/s", synced("create", "File creation")),
            "read_rate": ("ops/s", read),
            "remove_rate": ("ops/s", synced("remove", "File removal")),
        },
        exact=0.005,  # the table has three decimals of a second
    )
    with open(stage / "mdtest-create.1.ranks.csv", newline="") as file:
        assert len(list(csv.reader(file))) >= 3, "a row for each of two tasks"
