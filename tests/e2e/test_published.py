"""Job scripts of the five published systems, as ``reframe --system=<site> -c checks/ --dry-run`` writes them.

test_golden.py asserts every script word for word. Here the tools' commands are compared with those that the
documents print: the published variant has the same words, the sound one differs where it is said here and in
docs/scenarios.md.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.dry_runs import PUBLISHED
from support.golden import Case


@pytest.fixture
def site_cases(dry_run: Callable[[str], list[Case]]) -> Callable[..., list[Case]]:
    """Cases of a site, in the sound variant or in another, with the project's own site folders."""
    return lambda site, *variant: dry_run("-".join(["site", site, *variant]))


# --- azure-managed-lustre -------------------------------------------------------------------------

_IOR = "/home/azureuser/ior"
_HOSTS = "mpirun --hostfile hosts.txt --map-by node -np"
_MATRIX = f"{_HOSTS} 1600 {_IOR}"
_OUT = "-o /lustremnt/ior"
_JSON = "-O summaryFormat=JSON -O summaryFile=/lustremnt/ioroutput/out.nn_tput"
#: The document's commands, word for word but for the backslashes before quotes, which IOR cannot read.
PRINTED = {
    "Burst": f"{_HOSTS} 480 {_IOR} -z -w -r -i 2 -m -d 1 -e -F {_OUT}/test.file3 -t 32m -b 8g {_JSON}",
    "Steady": f"{_HOSTS} 480 {_IOR} --posix.odirect -g -v -w -i 3 -D 0 -k -F {_OUT}/test.file4 -t 4m "
    f"-b 4m -s 16384 {_JSON}2",
    "AccessMatrix random-buffered-4k": f"{_MATRIX} -b=128m -F=1 -e=1 -d=5 -m=1 -z=1 -i=3 -t=4k "
    f"{_OUT}/iops_n_to_n_rnd_buffered.testFile",
    "AccessMatrix random-buffered-4m": f"{_MATRIX} -b=4g -F=1 -e=1 -d=5 -m=1 -z=1 -i=3 -t=4m "
    f"{_OUT}/bw_n_to_n_rnd_buffered.testFile",
    "AccessMatrix sequential-buffered-4m": f"{_MATRIX} -b=4g -F=1 -e=1 -d=5 -m=1 -i=3 -t=4m "
    f"{_OUT}/bw_n_to_n_seq_buffered.testFile",
    "AccessMatrix random-direct-4m": f"{_MATRIX} -b=4g -F=1 -e=1 -d=5 -m=1 -z=1 -i=3 -t=4m "
    f"--posix.odirect=1 {_OUT}/bw_n_to_n_rnd_direct.testFile",
    "AccessMatrix random-direct-4k": f"{_MATRIX} -b=128m -F=1 -e=1 -d=5 -m=1 -z=1 -i=3 -t=4k "
    f"--posix.odirect=1 {_OUT}/iops_n_to_n_rnd_direct.testFile",
    "AccessMatrix sequential-direct-4m": f"{_MATRIX} -b=4g -F=1 -e=1 -d=5 -m=1 -i=3 -t=4m "
    f"--posix.odirect=1 {_OUT}/bw_n_to_n_seq_direct.testFile",
}
#: Files are the case's own, and the program is the one on PATH; the matrix prints no summary in the document.
_SUMMARY = ("-O", "summaryFormat=JSON", "-O", "summaryFile=FILE")


def words_of(command: str) -> Counter[str]:
    """Words of an IOR command line through mpirun, without the names of files; options keep their values."""
    words = ["ior" if word.endswith("/ior") else word for word in shlex.split(command)]
    # What stands before the tool counts beside it, what the warm-up adds is said there.
    text = re.sub(r" sh \S+/witness\.sh ior ", " ior ", " ".join(words)).replace(
        "${IOG_VERIFY[@]}", ""
    )
    text = re.sub(r"(-o|summaryFile=|DetailsCSV=)( ?)\S+", r"\1\2FILE", text)
    # A value belongs to its option: "-b 8g" and "-b=8g" are one word here.
    text = re.sub(r" (-[a-zA-Z]|-np|--\S+?)[ =](?=[^-\s])", r" \1=", text.replace("\n", " "))
    return Counter(text.split())


def phases(case: Case, tool: str) -> dict[str, str]:
    """Command lines of a tool in a case's script, by phase."""
    found = re.findall(r"^ *iog_phase (\S+) (.*)$", case.script, re.MULTILINE)
    return {name: command for name, command in found if f" {tool} " in f" {command} "}


def case_of(cases: list[Case], check: str, *marks: str) -> Case:
    """The one case of a check whose script or job files hold all marks."""
    found = [
        case for case in cases if case.check == check and all(mark in case.text for mark in marks)
    ]
    assert len(found) == 1, f"{check} {marks}: {[case.name for case in found]}"
    return found[0]


@pytest.mark.parametrize("printed", PRINTED)
def test_the_published_variant_has_the_documents_words(
    site_cases: Callable[..., list[Case]], printed: str
) -> None:
    check, *_ = printed.split()
    ours = [
        words_of(phases(case, "ior")["write"])
        for case in site_cases("azure-managed-lustre", "published")
        if case.check == check
    ]
    wanted = words_of(PRINTED[printed])
    if check == "AccessMatrix":
        wanted += words_of("x " + " ".join(_SUMMARY)) - Counter(["x"])
    assert wanted in ours, f"{wanted}\nis none of\n" + "\n".join(map(str, ours))


#: What the sound form has more or less than the published one, each for a reason in docs/scenarios.md.
_LESS_ALWAYS = {"-r", "-m", "-m=1", "-d=1", "-d=5", "-i=2", "-i=3", "-v", "-D=0", "--map-by=node"}
_MORE_WRITE = {"-a=POSIX", "-g", "-k", "-e", "-s=1", "-O=saveRankPerformanceDetailsCSV=FILE"}


@pytest.mark.parametrize("printed", ["Burst", "Steady"])
def test_the_sound_variant_differs_where_it_is_said(
    site_cases: Callable[..., list[Case]], printed: str
) -> None:
    case = case_of(site_cases("azure-managed-lustre"), printed)
    sound, wanted = words_of(phases(case, "ior")["write"]), words_of(PRINTED[printed])
    less, more = set(wanted - sound), set(sound - wanted)
    assert less <= _LESS_ALWAYS, less
    assert {
        word for word in more if not word.startswith(("--map-by=", "--bind-to="))
    } <= _MORE_WRITE, more
    reads = phases(case, "ior").get("read")
    assert (reads is None) == (printed == "Steady")
    if reads:
        assert {"-C", "-Q=1", "-r"} <= set(words_of(reads))


# --- the others -----------------------------------------------------------------------------------


@pytest.mark.parametrize("oss", [4, 8, 12])
@pytest.mark.parametrize("tasks", [1, 16, 24, 32])
def test_redline_shifts_its_readers_by_one_node_more_than_it_has_tasks(
    site_cases: Callable[..., list[Case]], oss: int, tasks: int
) -> None:
    """The document: 16 GB file for each task, 1 MB transfers, -Q T+1, files on OSTs round robin."""
    wanted = f"ior -a POSIX -F -E -w -r -C -Q {tasks + 1} -e -t 1m -b 16g "
    found = [
        case
        for case in site_cases("azure-cyclecloud", "published")
        if wanted in case.script and f"={oss * tasks}\n" in case.script
    ]
    assert len(found) == 1
    assert "iogauge.job.agent pin pins.json" in found[0].script


def test_redline_sound_reads_from_the_next_node(site_cases: Callable[..., list[Case]]) -> None:
    scaling = [case for case in site_cases("azure-cyclecloud") if case.check == "TaskScaling"]
    assert len(scaling) == 21
    for case in scaling:
        write, read = phases(case, "ior")["write"], phases(case, "ior")["read"]
        assert " -E" in write
        assert " -b 16g " in write
        assert " -t 1m " in write
        assert {"-C", "-Q=1"} <= set(words_of(read))


@pytest.mark.parametrize("block", ["4k", "32k", "128k"])
def test_oist_reads_at_random_with_o_direct(
    site_cases: Callable[..., list[Case]], block: str
) -> None:
    """The document: files of 4 GB for each process first, then random reads, sync and O_DIRECT, 10 s."""
    asked = (f"bs={block}\n", "numjobs=128\n", "runtime=10s\n", "rw=randread\n")
    published = [
        case
        for case in site_cases("oist-saion", "published")
        if case.check == "RandomRead" and all(line in case.text for line in asked)
    ]
    assert published
    for case in published:
        for line in ("direct=1\n", "sync=1\n", "rw=write\n"):
            assert line in case.text
        (size,) = set(re.findall(r"filesize=(\S+)", case.text))
        assert size.endswith("m")
        assert int(size[:-1]) == 4 * 10**9 // 2**20


def test_kaust_stripes_as_the_document_means(site_cases: Callable[..., list[Case]]) -> None:
    """``lfs setstripe -c 144`` (printed: seststripe), 1216 processes, one file of 361 GB."""
    case = case_of(
        site_cases("kaust-shaheen2"), "StripeCount", "lfs setstripe -c 144 ", " -a MPIIO "
    )
    assert 'iog_phase setstripe lfs setstripe -c 144 "$IOG_DIR"' in case.script
    assert "#SBATCH --ntasks=1216\n" in case.script
    (write,) = phases(case, "ior").values()
    words = words_of(write)
    assert "-c" in words
    sizes = {word[:2]: word[3:] for word in words if word.startswith(("-b=", "-s="))}
    assert sizes["-b"] == "1m"
    held = int(sizes["-s"]) * 2**20 * 1216
    assert held == pytest.approx(361e9, rel=0.002)


def test_kaust_asks_datawarp_for_its_space(site_cases: Callable[..., list[Case]]) -> None:
    on_buffer = [
        case
        for case in site_cases("kaust-shaheen2")
        if case.partition == "datawarp" and "iog_open" in case.script
    ]
    assert on_buffer
    for case in on_buffer:
        asked = re.search(
            r"^#DW jobdw type=scratch access_mode=striped capacity=2TiB$", case.script, re.M
        )
        assert asked, case.script
        assert 'export IOG_DIR="${DW_JOB_STRIPED:?is not set in this job}"/' in case.script


def test_kaust_names_its_aggregators(site_cases: Callable[..., list[Case]]) -> None:
    case = case_of(site_cases("kaust-shaheen2"), "Aggregators", "cb_nodes=80")
    assert re.search(r"MPICH_MPIIO_HINTS=\S*:cb_nodes=80", case.script)
    assert "darshan-parser" in case.script


def test_oracle_measures_two_servers(site_cases: Callable[..., list[Case]]) -> None:
    cases = [case for case in site_cases("oracle-oci") if case.check == "ServerScaling"]
    assert len(cases) == 2
    for case in cases:
        assert "iogauge.job.agent pin pins.json" in case.script


def test_no_path_of_this_machine_is_in_a_script(site_cases: Callable[..., list[Case]]) -> None:
    for site in PUBLISHED:
        for case in site_cases(site):
            assert str(Path.home()) not in case.text.replace("@ROOT@", ""), case.name
