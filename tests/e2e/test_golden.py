"""The job script of a case of each family and kind of site, word for word, and what must hold of all cases.

:mod:`e2e.dry_runs` says which cases, :mod:`support.golden` which of them are recorded. If a change is meant, record anew,
and read the difference in git::

    IOGAUGE_GOLDEN=update python -m pytest tests/e2e/test_golden.py
"""

import os
import re
import shlex
from collections import Counter

import pytest

from e2e.dry_runs import DRY_RUNS, MADE_UP
from support import golden

#: Checks whose points may meet another scenario, or have a scale of their own.
SWEEPS = ("TaskScaling", "ServerScaling", "RandomRead", "NodeNeedle")


#: The scripts with srun and mpirun differ as those of ``pbs-openmpi`` do.
RECORDED = [name for name in DRY_RUNS if name != "cluster-mpirun"]


@pytest.mark.parametrize("name", RECORDED)
def test_scripts_are_as_recorded(dry_run, name):
    cases = dry_run(name)
    assert len({case.key for case in cases}) == len(cases)
    found = golden.scripts(cases)
    if os.environ.get("IOGAUGE_GOLDEN") == "update":
        golden.write(name, found)
    different = golden.differences(golden.read(name), found)
    assert not different, (
        f"{name}\n{different}\nmeant? IOGAUGE_GOLDEN=update records them anew"
    )
    assert {folder.name for folder in golden.FOLDER.iterdir()} == {*RECORDED}


@pytest.fixture(
    params=[
        "workstation",
        "cluster-srun",
        pytest.param("cluster-mpirun", marks=pytest.mark.nightly),
    ]
)
def site(request):
    return str(request.param)


@pytest.fixture
def cases(dry_run, site):
    """Cases of a made-up site."""
    return dry_run(site)


def test_every_check_is_there_and_no_two_do_the_same(cases, site):
    classes = {name for names in golden.families().values() for name in names}
    striped = {
        "ServerScaling",
        "StripeCount",
        "StripeSize",
        "TargetNeedle",
    }
    striped |= {
        "StripeHints",
        "StripeSpeedup",
        "MdtestDom",
    }
    several = {"NodeNeedle", "Io500", "Io500Short"}
    # Their sites are published ones, whose scripts are recorded as well.
    classes -= {"BoxScaling", "DefaultWriters", "SizeScaling"}
    missing = classes - {case.check for case in cases}
    assert missing == (striped | several if site == "workstation" else set())
    seen = {}
    # What is derived does nothing.
    for case in cases:
        if case.check not in SWEEPS and case.phases:
            assert case.does not in seen, (
                f"{case.name} does what {seen[case.does]} does"
            )
            seen[case.does] = case.name


def tool_words(phase, tool):
    """Arguments of a phase's tool; empty where the phase runs another."""
    return phase[phase.index(tool) + 1 :] if tool in phase else []


def test_writes_end_on_storage(cases):
    writes = 0
    for case in cases:
        for phase in case.phases:
            for tool, write, sync in (("ior", "-w", "-e"), ("mdtest", "-C", "-Y")):
                words = tool_words(phase, tool)
                writes += write in words
                assert write not in words or sync in words, case.name
        for name, text in case.inputs.items():
            if (
                re.search(r"^rw=(rand)?(write|rw)$", text, re.MULTILINE)
                and "ioengine=file" not in text
            ):
                writes += 1
                assert "end_fsync=1" in text, f"{case.name}: {name}"
    assert writes >= 12


def test_reads_meet_no_cache(cases, site):
    """On one node a buffered read follows an emptied cache; on several the readers are shifted."""
    nodes, reads = MADE_UP[site][2], 0
    for case in cases:
        names = [phase[0] for phase in case.phases]
        for at, phase in enumerate(case.phases):
            ior, mdtest = tool_words(phase, "ior"), tool_words(phase, "mdtest")
            if not ("-r" in ior or "-E" in mdtest) or "--posix.odirect" in ior:
                continue
            reads += 1
            evicted = names[at - 1] == f"evict-{phase[0]}"
            if nodes == 1:
                assert evicted, case.name
            elif mdtest:
                assert mdtest[mdtest.index("-N") + 1] == "1"
            else:
                # IOR shifts no readers of a shuffled shared file, nor through PnetCDF: there the cache is emptied.
                shifted = "-C" in ior and ior[ior.index("-Q") + 1] == "1"
                unshifted = ("-z" in ior and "-F" not in ior) or "NCMPI" in ior
                assert evicted and not shifted if unshifted else shifted, case.name
        for name, text in case.inputs.items():
            if "rw=randread" in text:
                reads += 1
                evicted = f"evict-{name.removesuffix('.fio')}" in names
                assert evicted or "direct=1" in text, f"{case.name}: {name}"
    assert reads >= 8


# --- the commands that the documents of published systems print -----------------------------------

_IOR = "/home/azureuser/ior"
_HOSTS = "mpirun --hostfile hosts.txt --map-by node -np"
_MATRIX = f"{_HOSTS} 1600 {_IOR}"
_OUT = "-o /lustremnt/ior"
_JSON = "-O summaryFormat=JSON -O summaryFile=/lustremnt/ioroutput/out.nn_tput"
#: Word for word but for the backslashes before quotes, which IOR cannot read. The matrix prints no summary.
PRINTED = {
    "Burst": f"{_HOSTS} 480 {_IOR} -z -w -r -i 2 -m -d 1 -e -F {_OUT}/test.file3 -t 32m -b 8g {_JSON}",
    "Steady": f"{_HOSTS} 480 {_IOR} --posix.odirect -g -v -w -i 3 -D 0 -k -F {_OUT}/test.file4 -t 4m "
    f"-b 4m -s 16384 {_JSON}2",
    "AccessMatrix random 4k": f"{_MATRIX} -b=128m -F=1 -e=1 -d=5 -m=1 -z=1 -i=3 -t=4k {_OUT}/x {_JSON}",
    "AccessMatrix sequential direct 4m": f"{_MATRIX} -b=4g -F=1 -e=1 -d=5 -m=1 -i=3 -t=4m "
    f"--posix.odirect=1 {_OUT}/x {_JSON}",
}


def words_of(command):
    """Words of an IOR command line through mpirun, without the names of files; options keep their values."""
    words = ["ior" if word.endswith("/ior") else word for word in shlex.split(command)]
    # What stands before the tool counts beside it, what the warm-up adds is said there.
    text = re.sub(r" /bin/sh \S+/witness\.sh \S+ \S+ ior ", " ior ", " ".join(words))
    text = text.replace("${IOG_VERIFY[@]}", "")
    text = re.sub(r"(-o|summaryFile=|DetailsCSV=)( ?)\S+", r"\1\2FILE", text)
    # A value belongs to its option: "-b 8g" and "-b=8g" are one word here.
    text = re.sub(
        r" (-[a-zA-Z]|-np|--\S+?)[ =](?=[^-\s])", r" \1=", text.replace("\n", " ")
    )
    return Counter(text.split())


def command_of(case, phase):
    """Command line of IOR in a phase of a case's script; empty if it has none."""
    found = re.search(rf"^ *iog_phase {phase} (.* ior .*)$", case.script, re.MULTILINE)
    return found[1] if found else ""


@pytest.mark.parametrize("printed", PRINTED)
def test_the_published_variant_has_the_documents_words(dry_run, printed):
    ours = [
        words_of(command_of(case, "write"))
        for case in dry_run("published-azure-managed-lustre")
        if case.check == printed.split()[0]
    ]
    assert words_of(PRINTED[printed]) in ours, "\n".join(map(str, ours))
