"""Text from outside is shown, not acted upon: by the terminal, by rich, by ReFrame's reports, by a shell."""

import ast
import io
import json
import os
import re
import subprocess
import sys
import unicodedata
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from reframe.utility import color
from rich.console import Console
from typer.testing import CliRunner

from iogauge.cases import configuration
from iogauge.cases.job_files import _directory_word
from iogauge.cases.storage import StorageCheck
from iogauge.cli import app, planning
from iogauge.core.measurement import Quantity
from iogauge.core.paths import LIBRARY
from iogauge.evidence import complaints
from iogauge.judge.verdict import Verdict
from iogauge.plan.case import DIR, Access, PhasePlan, Verification
from iogauge.plan.script import Launch, job_functions
from iogauge.plan.stage import PhaseRun
from iogauge.records.record import Record
from iogauge.report import history_table, outcome
from iogauge.site.extras import PartitionExtras
from iogauge_extras.compare import logs
from iogauge_extras.compare.logs import Figures
from support import stage as healthy
from support.depth import FULL
from support.extras import EXTRAS, extras
from support.records import RECORD

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


def shown(*things):
    """What a terminal would get."""
    file = io.StringIO()
    console = Console(
        file=file, width=4000, highlight=False, force_terminal=True, color_system=None
    )
    for thing in things:
        console.print(thing)
    return file.getvalue()


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


def unchecked(values):
    """The record of JSON that may hold text that no file of a session can: what ReFrame's report says is not read."""
    plain = Record.from_json(RECORD)
    metrics = [
        replace(
            plain.metrics[0],
            **{key: one[key] for key in ("name", "unit", "better", "reason")},
        )
        for one in values["metrics"]
    ]
    (finding,) = values["findings"]
    told = replace(plain.findings[0], **finding)
    texts = (
        "session",
        "system",
        "environment",
        "partition",
        "check",
        "case",
        "reason",
        "time",
    )
    return replace(
        plain,
        **{key: values[key] for key in (*texts, "fingerprint", "target")},
        price=replace(plain.price, **values["price"]),
        verdict=Verdict.FAIL,
        metrics=tuple(replace(one, verdict=Verdict.FAIL) for one in metrics),
        findings=(told,),
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_record_holds_is_only_shown(text):
    record = hostile_record(text)
    kept = unchecked(record)
    log = Figures(
        name=text, values={text: Quantity(1.0, text)}, facts={text: text}, notes=(text,)
    )
    found = logs.compare(log, replace(log, facts={}))
    printed = shown(
        outcome.table(outcome.rows([kept])),
        history_table.table([(kept, {text, f"{text}2"})]),
        found.render(),
        outcome.plain(text),
    )
    assert not acts(printed), acts(printed)
    assert printed.count(text) >= 5 or not text.isprintable()
    assert not acts(found.to_json())


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
        ["history", "--damaged"],
        ["status", "--trend"],
        ["status", "--trend", "--json"],
        ["compare", "20270131T120000-n1-1:#1", f"20270131T120000-n1-1:{text}"],
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
    said = StorageCheck._said(Verdict.ERROR, f"line 1\n{text}")
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

#: What makes text fit to be printed, or is a number or a word of ours.
_SAFE_WORDS = (
    "plain visible visible_lines escape len format_bytes records.summary "
    "summary outcome.table history_table.table found.render plan_table.table plan_table.listing "
    "profile.to_json found.to_json json.dumps to_json outcome.rows outcome.to_json "
    "marks.marks_table marks.marks_json report.table Table "
)
# A record as JSON is ASCII.
_SAFE_CALLS = {*_SAFE_WORDS.split(), "record.to_line().decode"}
_SAFE_NAMES = {"word", "mark", "view", "host", "usage", "_NAMED", "now"}


#: A target's path as its model accepts it, a session's own directory below it, words of ours.
_SAFE_IN = {
    "cases/configuration.py": {"message"},
    "session/current.py": {"reason"},
    "job/lead_agent.py": {"WORD"},
    "iogauge_extras/page/page_commands.py": {"NOBODY"},
}


def modules():
    source = LIBRARY.parent
    for file in sorted(source.rglob("*.py")):
        name = file.relative_to(source).as_posix().removeprefix("iogauge/")
        yield name, ast.parse(file.read_text())


def calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def raw(node, safe):
    """Whether an expression may hold text from outside as it came."""
    if isinstance(node, ast.Constant):
        return False
    if isinstance(node, ast.JoinedStr):
        return any(raw(part, safe) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return raw(node.value, safe)
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) not in _SAFE_CALLS
    if isinstance(node, ast.IfExp):
        return raw(node.body, safe) or raw(node.orelse, safe)
    if isinstance(node, ast.BinOp):
        return raw(node.left, safe) or raw(node.right, safe)
    return not (isinstance(node, ast.Name) and node.id in safe)


@pytest.mark.slow
def test_everything_that_is_printed_was_made_visible():
    printers = ("console.print", "typer.echo", "print", "_console().print")
    found = [
        f"{name}:{node.lineno}: {ast.unparse(node)}"
        for name, tree in modules()
        for safe in [frozenset(_SAFE_NAMES | _SAFE_IN.get(name, set()))]
        for function, node in calls(tree)
        if function in printers and any(raw(argument, safe) for argument in node.args)
    ]
    assert found == []


def test_nothing_that_was_read_is_run():
    """No code, no pickle, no shell and no object comes out of data."""
    words = (
        "eval exec compile __import__ os.system os.popen "
        "yaml.unsafe_load yaml.full_load yaml.load_all yaml.unsafe_load_all pickle.load marshal.loads "
        "pickle.loads subprocess.getoutput subprocess.getstatusoutput shelve.open "
    )
    forbidden = set(words.split())
    #: Between a process and the one that it started itself, through a pipe.
    allowed = {("core/processes.py", "pickle.loads")}
    for name, tree in modules():
        for function, node in calls(tree):
            assert function not in forbidden or (name, function) in allowed, (
                f"{name}:{node.lineno}"
            )
            for keyword in node.keywords:
                assert keyword.arg != "shell", f"{name}:{node.lineno}"
            if function in ("yaml.load", "yaml.compose"):
                (loader,) = [
                    ast.unparse(k.value) for k in node.keywords if k.arg == "Loader"
                ]
                assert loader in ("_Loader", "_TextLoader", "yaml.SafeLoader"), (
                    f"{name}:{node.lineno}"
                )


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
        return ["sh", launch.witness, directory, "two.1", "--look", when]

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
            *["sh", launch.witness, directory, "one.1", *tool, "-v"],
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
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "?2 ?s\n"


def test_reframe_colours_nothing_that_goes_into_a_file(monkeypatch):
    monkeypatch.setattr(color, "colorize", color.colorize)
    monkeypatch.setattr(planning.cli, "main", lambda: color.colorize("P: 1", "red"))
    monkeypatch.setenv("RFM_COLORIZE", "n")
    assert planning.reframe_main() == "P: 1"


def test_a_failing_tool_gives_a_terminal_no_orders(tmp_path):
    job = Path(planning.__file__).parents[1] / "job/job.sh"
    tool = r"printf '\\033]0;obeyed\\007 caf\\303\\251\\n' >&2; exit 3"
    script = f'. {job}; IOG_KEEPER_IN=2; IOG_DIR=/x/y/z/a; iog_ask() {{ :; }}; iog_phase write sh -c "{tool}"'
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 3
    assert b"\033" not in done.stderr and "obeyed café".encode() in done.stderr
