"""The readable form of the golden scripts: what it expands to, that it is the shortest form, what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from support.golden import Case, count, dry_runs, expand, fill, merge, read, unfold, units
from support.golden_form import fold

CASE = Case(
    partition="p",
    environ="e",
    title="IorPosix %files=shared",
    hash="0123abcd",
    nodes=2,
    tasks=8,
    script=(
        '#!/bin/bash\n#SBATCH --job-name="rfm_IorPosix_0123abcd"\n#SBATCH --ntasks=8\n'
        "export IOG_DIR=/s/iogauge/@USER@/@SESSION@/IorPosix-0123abcd-p-e\n. @ROOT@/x/job.sh\n"
        "iog_prepare() {\n    iog_phase facts-start srun --nodes=2 --ntasks=2 "
        'env PYTHONPATH=@ROOT@ @PYTHON@ -m x.agent facts "$IOG_DIR" facts-start\n}\n'
        'iog_case() {\n    iog_phase write srun --cpu-bind=cores ior -t 4k -w -o "$IOG_DIR/data"\n'
        '    iog_phase read srun --cpu-bind=cores ior -t 4k -r -o "$IOG_DIR/data"\n}\n'
    ),
    inputs={},
)


def with_words(old: str, new: str) -> Case:
    """Another case, in whose script some words are others."""
    assert old in CASE.script
    script = CASE.script.replace("0123abcd", "4567cdef").replace(old, new)
    return replace(CASE, hash="4567cdef", script=script)


# --- The files of the project ---------------------------------------------------------------------


def test_the_files_are_what_would_be_written() -> None:
    """Nothing in them is unused, written twice, or longer than it need be."""
    files = read()
    assert fold({name: expand(files, name) for name in dry_runs(files)}) == files


#: A file of the recorded scripts, and words in it.
WORDS = (
    ("words.txt", "--distribution=block --cpu-bind=cores"),
    ("checks.txt", "-F -L -u -C -Y"),
    ("commands/site-kaust-shaheen2.txt", "#SBATCH --account=k01"),
    ("commands/site-oracle-oci.txt", "lustre-client-"),
    ("commands/workstation.txt", "PRTE_MCA_prte_display=bindings"),
    ("jobs/TargetNeedle.write.fio", "create_on_open=1"),
)


def test_a_changed_word_changes_every_script_that_has_it() -> None:
    files = read()
    recorded = {name: expand(files, name) for name in dry_runs(files)}
    for path, word in WORDS:
        other = files | {path: files[path].replace(word, "CHANGED")}
        changed = 0
        for name, cases in recorded.items():
            for before, after in zip(cases, expand(other, name), strict=True):
                assert after.text.replace("CHANGED", word) == before.text, (path, word)
                changed += before != after
        assert changed, (path, word)


# --- Writing and reading --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cases",
    [
        [CASE],
        [CASE, with_words("-t 4k", "-t 1m -z")],
        [CASE, with_words("-t 4k -w", "-w -t 4k")],
        [CASE, with_words(" -w", "")],
        [CASE, with_words("-w", "-O a=1 -O b=2 -O a=1"), with_words("-w", "-O b=2 -O a=1")],
        [CASE, with_words("cores", "none")],
        [CASE, with_words("--ntasks=8", "--ntasks=9")],
        [CASE, with_words("    iog_phase read", "    iog_more\n    iog_phase read")],
        [CASE, replace(CASE, partition="q")],
        [replace(CASE, inputs={"hosts.txt": "n08 slots=4\nn09 slots=4\nn10 slots=4\n"})],
        [replace(CASE, inputs={"a.fio": "[a]\nbs=1m\n\n[b]\nbs=1m\n"})],
        [replace(CASE, inputs={"a.fio": "[o0]\nd=x/o0\n\n[o1]\nd=x/o1\n"})],
        [replace(CASE, inputs={"a.fio": "[o0]\nd=x/o0\n\n[o1]\nd=x/o7\n"})],
    ],
)
def test_what_was_written_is_read_back(cases: Sequence[Case]) -> None:
    cases = [replace(case, hash=f"{n:08x}") for n, case in enumerate(cases)]
    assert expand(fold({"run": cases}), "run") == cases


def test_a_partition_says_what_most_of_its_cases_share() -> None:
    others = [with_words("cores", "none"), replace(CASE, hash="89abcdef")]
    files = fold(
        {"run": [CASE, *(replace(case, title=f"{case.title}{n}") for n, case in enumerate(others))]}
    )
    text = files["commands/run.txt"]
    assert text.count("<srun>") == 1
    assert text.count("run=<srun-unbound>") == 1


def test_what_the_form_cannot_express_is_refused() -> None:
    with pytest.raises((ValueError, KeyError)):
        fold({"run": [with_words("-t 4k", "'<nothing>'")]})
    with pytest.raises(ValueError, match="the form cannot express"):
        fold({"run": [with_words("-t 4k", "-t  4k")]})


def test_words_of_a_command_line() -> None:
    text = """<run> ior -t 4k -F -w (-Q _) -c -1 -O "a b=$X" 'c d' --long=1 2"""
    assert units(text) == [
        *("<run>", "ior", "-t 4k", "-F", "-w", "(-Q _)", "-c -1", '-O "a b=$X"', "'c d'"),
        *("--long=1", "2"),
    ]


def test_a_case_names_what_varies() -> None:
    form = ["ior", "-t _", "(-z)", "-k", "(-Q _)"]
    assert merge(form, ["-t 4k"]) == ["ior", "-t 4k", "-k"]
    assert merge(form, ["-t 4k", "-z", "-Q 1"]) == ["ior", "-t 4k", "-z", "-k", "-Q 1"]
    with pytest.raises(ValueError, match="expected '-t _' next"):
        merge(form, ["-z"])
    with pytest.raises(ValueError, match="no place for '-z'"):
        merge(form, ["-t 4k", "-Q 1", "-z"])


def test_slots_are_filled() -> None:
    values = {"a": "x <b>", "b": "1", "lines": "p\nq", "none": ""}
    assert fill("<a> ${c}\n  <lines>\n<none>\nend", values) == "x 1 ${c}\n  p\n  q\nend"
    with pytest.raises(KeyError, match="unknown"):
        fill("<unknown>", values)


def test_a_run_of_sections_is_written_out() -> None:
    assert unfold("[o{08..0b}] x 4\nd=o{08..0b}/") == "\n\n".join(
        f"[o{n}]\nd=o{n}/" for n in ("08", "09", "0a", "0b")
    )
    assert unfold("n{08..11} s x 4", between="\n") == "n08 s\nn09 s\nn10 s\nn11 s"
    assert unfold("[o]\na=1\n\n[p]\na=2") == "[o]\na=1\n\n[p]\na=2"
    with pytest.raises(ValueError, match=r"8\.\.11 are not 5"):
        count("8", "11", 5)
