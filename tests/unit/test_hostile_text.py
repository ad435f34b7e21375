"""Text from outside is shown, not acted upon: by the terminal, by rich, by ReFrame's reports, by a shell."""

import json
import os
import re
import subprocess
import sys
import unicodedata
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from reframe.frontend import cli as reframe_cli
from reframe.utility import color
from typer.testing import CliRunner

from iogauge.cases import configuration
from iogauge.cases.job_files import _directory_word
from iogauge.cases.storage import StorageCheck
from iogauge.cli import app, planning
from iogauge.core.paths import LIBRARY
from iogauge.evidence import complaints
from iogauge.judge.verdict import Verdict
from iogauge.plan.case import DIR, Access, PhasePlan, Verification
from iogauge.plan.script import Launch, job_functions
from iogauge.plan.stage import PhaseRun
from iogauge.site.extras import PartitionExtras
from support import stage as healthy
from support.depth import FULL
from support.extras import EXTRAS, extras
from support.records import RECORD
from support.shell import completed

HOSTILE = (
    "[bold]loud[/]",
    "[/]",
    "[link=http://x]y[/link]",
    "\x1b[2Jgone\x1b]0;title\x07",
    "a\rb",
    "a\x08\x08b\x9b31m",
    "\u202eabc\u2066",
    "$(touch canary)`touch canary`",
    "'; touch canary; '",
    '"; touch canary; "',
    "--option",
    "a b\tc",
    "ünïcode",
    "\udcff\ud800",
    "]]>&<x>",
)
#: For what is dear: all of them in one, and by night each.
FEW = HOSTILE if FULL else (HOSTILE[0], "".join(HOSTILE[2:8]), HOSTILE[-2], HOSTILE[-1])


def acts(text):
    """Characters of a text that a terminal would act upon, but for line ends."""
    return [
        c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs")
    ]


def hostile_record(text):
    record = json.loads(json.dumps(RECORD))
    for key in (
        "case",
        "partition",
        "system",
        "environment",
        "check",
        "reason",
        "session",
        "time",
    ):
        record[key] = text
    record["target"]["path"] = record["price"]["currency"] = record["price"][
        "source"
    ] = text
    record["fingerprint"] = {text: text}
    record["verdict"] = "FAIL"
    metric, finding = record["metrics"][0], record["findings"][0]
    metric |= {
        "name": text,
        "reason": text,
        "verdict": "FAIL",
        "unit": text,
        "better": text,
    }
    record["metrics"].append({**metric, "unit": "MiB/s", "name": f"{text}2"})
    finding |= {
        "guard": text,
        "saw": text,
        "demands": text,
        "metric": None,
        "remedy": text,
    }
    return record


@pytest.mark.parametrize("text", FEW)
def test_what_commands_print_of_a_foreign_history(text, tmp_path, monkeypatch):
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))
    folder = tmp_path / "history" / "mysite"
    folder.mkdir(parents=True)
    lines = [json.dumps({**hostile_record(text), "time": RECORD["time"]})]
    lines += [
        json.dumps({"schema": text}),
        json.dumps({**RECORD, "verdict": text}),
        text[:3],
    ]
    lines += [json.dumps({**RECORD, "case": 5, "metrics": [{text: text}]})]
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    (folder / "20270131T120000-n1-1.jsonl").write_bytes(data)
    for words in (
        ["report"],
        ["history"],
        ["history", "--json"],
        ["status", "--json", "--since", "2020-01-01"],
        ["compare", "20270131T120000-n1-1", f"case={text}"],
        ["report", text],
        ["history", "-n", text],
    ):
        done = CliRunner().invoke(app.app, words)
        assert done.exception is None or isinstance(done.exception, SystemExit), (
            words,
            done,
        )
        if not ("--json" in words and text.isprintable()):
            assert not acts(done.output.replace("\t", " ")), (words, acts(done.output))


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_tool_says_of_its_failure(text, tmp_path):
    said = f"error: {text}"
    (tmp_path / "write.1.err").write_bytes(said.encode("utf-8", "surrogatepass"))
    last = complaints.telling_line(tmp_path, PhaseRun(1, "write", 1, 0.0, 1.0, "t"))
    assert not acts(last) and last.startswith("error: ")


@pytest.mark.parametrize("text", HOSTILE)
def test_what_reframe_is_told_fits_into_its_reports(text):
    said = StorageCheck._message(Verdict.ERROR, f"line 1\n{text}")
    assert not acts(said)
    assert said.startswith("ERROR: line 1\n")
    element = ElementTree.Element("failure", message=said)
    element.text = said
    assert ElementTree.fromstring(ElementTree.tostring(element)).text == said


@pytest.mark.parametrize("text", [t for t in FEW if "\udcff" not in t])
def test_what_a_site_says_of_itself(text, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path / "home"))
    folder = tmp_path / "sites" / "mysite"
    folder.mkdir(parents=True)
    (folder / "settings.yaml").write_text(
        json.dumps(
            {"systems": [{"name": text, text: 1}], text: text, "environments": []}
        )
    )
    (folder / "references.yaml").write_text(
        json.dumps({text: {text: text}, "$sources": {text: 5}})
    )
    monkeypatch.setenv("IOGAUGE_CONFIGURATION", str(tmp_path / "sites"))
    configuration.load(tmp_path / "sites")
    printed = capsys.readouterr()
    assert "site mysite is disabled" in printed.err
    assert not acts(printed.err + printed.out)
    done = CliRunner().invoke(app.app, ["check"])
    assert done.exit_code == 1
    assert not acts(done.output)


# --- nothing is printed raw -----------------------------------------------------------------------


def test_no_process_is_ended_by_its_name():
    for file in LIBRARY.rglob("*.sh"):
        assert not re.search(r"\b(pkill|killall|eval)\b", file.read_text()), file


# --- no shell string is built from site data ------------------------------------------------------

_NASTY = st.text(
    st.sampled_from("ab/ $`'\"\\;&|<>()[]{}*?!#~%=+,-@:.\t\n\x01é\u202e"), max_size=12
)
_WORD = _NASTY | st.sampled_from([text for text in HOSTILE if text.isascii()])
STUBS = "iog_{0}() {{ printf '%s\\0' {0} \"$@\" '<end>'; }}\n"


def accepted(make, text, otherwise):
    """What the site's model makes of a text; something plain where it refuses it."""
    try:
        return make(text)
    except ValidationError:
        return otherwise


def _run(script):
    """Words of each call, of a script that a bash runs where nothing of the outside can be reached."""
    with TemporaryDirectory() as folder:
        given = {"input": script.encode(), "cwd": folder, "check": False}
        assert subprocess.run(["bash", "-n"], **given).returncode == 0, script
        done = subprocess.run(["bash", "-u"], capture_output=True, **given)
        assert list(Path(folder).iterdir()) == [], (
            script,
            list(Path(folder).iterdir()),
        )
    assert done.returncode == 0 and not done.stderr, (script, done.stderr)
    lines = done.stdout.decode().split("<end>\0")
    assert lines.pop() == ""
    return [line.split("\0")[:-1] for line in lines]


@given(words=st.lists(_WORD, min_size=6, max_size=6))
def test_a_job_runs_the_words_that_were_meant_and_no_others(words):
    path, interface, library, state, session, argument = words
    target = accepted(
        lambda t: extras(target={"path": f"/{t}"}), path, extras()
    ).target.path
    nic = accepted(
        lambda t: PartitionExtras.of_partition({**EXTRAS, "interface": t}),
        interface,
        extras(),
    ).interface
    directory = f"{target}/iogauge/user/{session.replace('/', '')}/case"
    phase = PhasePlan(
        name="one",
        command=["tool", argument, f"{DIR}/data"],
        launch="tasks",
        parse=None,
        rates={"one": ("one", "bw")},
        access=Access(direction="write", evict=True),
        verifies=Verification((argument, "-R"), "wrong"),
    )
    served = PhasePlan(
        name="two",
        command=["job.fio", argument],
        launch="clients",
        parse=None,
        rates={"two": ("two", "bw")},
        access=Access(direction="read"),
    )
    own = PhasePlan(
        name="three",
        command=["checksums", "on", DIR],
        launch="agent",
        parse=None,
        rates={},
        access=Access(direction="none"),
    )
    plan = healthy.plan(repeat=[phase, served, own], repetitions=1, restores=True)
    agent, each = ["env", f"PYTHONPATH={library}", "python"], ["each", argument]
    launch = Launch(
        run_tasks="mpirun -np 2",
        each_node=each,
        agent=agent,
        witness=f"{library}/witness.sh",
        restore=state,
        interface=nic,
    )
    calls = ("phase", "agents", "client", "at_close", "reset", "verify", "sample")
    script = "".join(STUBS.format(name) for name in calls)
    script += (
        f"export IOG_DIR={_directory_word(directory)}\nIOG_REP=1\nIOG_VERIFY=(-v)\n"
    )
    script += f"IOG_STAGE={_directory_word(directory)}\n"
    script += (
        "\n".join([*job_functions(plan, launch), "iog_prepare", "iog_case"]) + "\n"
    )

    tool = ["tool", argument, f"{directory}/data"]

    def look(when):
        return ["/bin/sh", launch.witness, directory, "two.1", "--look", when]

    def facts(out):
        return ["phase", out, *each, *agent, "facts", directory, out]

    assert _run(script) == [
        facts("facts-start"),
        ["at_close", *agent, "restore", state],
        ["agents", plan.tool, "1", nic or "", *each],
        facts("facts-before"),
        ["reset"],
        ["phase", "evict-one", *each, *agent, "evict", directory, "evict-one.1"],
        ["verify", argument, "-R"],
        [
            *["phase", "one", *launch.run_tasks.split()],
            *["/bin/sh", launch.witness, directory, "one.1", *tool, "-v"],
        ],
        ["sample", "write", directory],
        ["phase", "look-before-two", *each, *look("before")],
        ["client", "two", "job.fio", argument],
        ["phase", "look-after-two", *each, *look("after")],
        ["sample", "read", directory],
        ["phase", "three", *agent, "checksums", "on", directory, state],
        facts("facts-after"),
    ]


# --- terminals ------------------------------------------------------------------------------------


def test_what_a_terminal_cannot_encode_is_replaced():
    script = (
        "from iogauge.core import processes; processes.open_streams(); print('±2 µs')"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = completed(
        [sys.executable, "-c", script],
        env=environment,
        check=True,
    )
    assert done.stdout == "?2 ?s\n"


def test_reframe_colours_nothing_that_goes_into_a_file(monkeypatch):
    monkeypatch.setattr(color, "colorize", color.colorize)
    monkeypatch.setattr(reframe_cli, "main", lambda: color.colorize("P: 1", "red"))
    monkeypatch.setenv("RFM_COLORIZE", "n")
    assert planning.reframe_main()() == "P: 1"


def test_a_failing_tool_gives_a_terminal_no_orders(tmp_path):
    job = Path(planning.__file__).parents[1] / "job/job.sh"
    tool = r"printf '\\033]0;obeyed\\007 caf\\303\\251\\n' >&2; exit 3"
    script = f'. {job}; IOG_KEEPER_IN=2; IOG_DIR=/x/y/z/a; iog_ask() {{ :; }}; iog_phase write sh -c "{tool}"'
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 3
    assert b"\033" not in done.stderr and "obeyed café".encode() in done.stderr
