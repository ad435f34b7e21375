"""Every reader of outside data, what it is fed with, and what it may do with it.

A reader turns text into values that satisfy its invariants, or raises its named error with a message.
Inputs are recorded samples that were damaged by :func:`damage`, or made up; tests/unit/test_fuzz.py draws
them with Hypothesis.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from rich.console import Console

from iogauge.cli.reporting import Asked
from iogauge.core import yamlfile
from iogauge.core.measurement import ToolOutput, ToolOutputError
from iogauge.core.yamlfile import YamlError
from iogauge.evidence import task_counters, times
from iogauge.node import activity, identity, inventory
from iogauge.node.lustre import checksums, file_layout, lov, parameters, targets
from iogauge.node.lustre.lfs import LustreError
from iogauge.node.lustre.quotas import parse_lfs_quota, parse_lfs_quotas
from iogauge.node.mounts import fsname_of, parse_mountinfo
from iogauge.plan import observations, stage
from iogauge.records import journal, query, selected
from iogauge.records.record import Record
from iogauge.report import endings, export, history_table, outcome
from iogauge.site import mistakes as site_mistakes
from iogauge.site import references
from iogauge.tools.fio import fio_output as tools_output
from iogauge.tools.ior.ior_output import parse_json, with_rank_times
from iogauge.tools.mdtest import parse as parse_mdtest
from iogauge.tools.mdtest import parse_rank_csv
from iogauge_extras.compare import logs, sides
from iogauge_extras.compare.logs import CompareError
from iogauge_extras.darshan import log as darshan
from iogauge_extras.darshan.log_figures import of_log
from iogauge_extras.history import yamledit
from iogauge_extras.history.runs import Refused
from iogauge_extras.loads.bandwidth_series import series_of_instants
from iogauge_extras.needle import slow_probes as needle
from iogauge_extras.page import marks, news, page
from iogauge_extras.suites import io500, wrf
from support import stage as healthy
from support.lustre import lov as encoder
from support.lustre.recorded import parse_parameters, sessions
from support.project import DATA, ROOT
from support.records import RECORD


@dataclass(frozen=True)
class Reader:
    """``read`` takes what a file or a program said; ``errors`` are its named errors.

    ``whole``: every cut of a sample before its last ``whole`` characters must be noticed; 0: cannot be.
    """

    name: str
    samples: Sequence[bytes]
    read: Callable[[bytes], object]
    errors: tuple[type[Exception], ...] = ()
    #: What a message must hold one of.
    names: str = ""


def text_of(data):
    """Bytes as every reader of program output takes them: what is no UTF-8 is replaced."""
    return data.decode("utf-8", "replace")


# --- damage ---------------------------------------------------------------------------------------

HOSTILE = (
    None,
    True,
    0,
    -1,
    2**64 - 1,
    10**400,
    -0.5,
    1e-320,
    math.nan,
    -math.inf,
    "",
    "nan",
    "\0",
    "\x1b[2J[bold]x[/]",
    "../../x",
    "9" * 5000,
    "\ud800",
    "²",
    [],
    {},
    {"a": {"b": []}},
)
#: What is put into text: numbers that are none, control characters, marks of YAML and JSON.
SNIPPETS = (
    b"",
    b"\0",
    b"\r\n",
    b"\x1b[31m",
    b"\xff\xfe",
    "\u202e\u2028".encode(),
    b"\t",
    b" " * 3000,
    b"nan",
    b"-inf",
    b"Infinity",
    b"-1",
    b"0.000",
    b"1e308",
    b"1e-320",
    b"1e999",
    b"9" * 5000,
    b"-",
    b"/",
    b"{",
    b"}",
    b'"',
    b"[" * 2000,
    b'{"a":' * 2000,
    b"- " * 1500,
    b": ",
    b"# ",
    b"&a ",
    b"*a",
    b"<<: *a",
    b"!!python/object:os.system x",
    b"!!set {a}",
    b"!!int '1_'",
)


def _nodes(value, path=()):
    yield path
    if len(path) < 30 and isinstance(value, (dict, list)):
        for key, inner in (
            value.items() if isinstance(value, dict) else enumerate(value)
        ):
            yield from _nodes(inner, (*path, key))


def _set_node(data, number, what):
    """A document with one node replaced by something hostile, dropped, or doubled."""
    paths = list(_nodes(data))
    path = paths[number % len(paths)]
    value = HOSTILE[what % len(HOSTILE)]
    if not path:
        return value
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    choice = what % 7
    if choice == 5 and isinstance(inner, dict):
        del inner[path[-1]]
    elif choice == 6 and isinstance(inner, list):
        inner.append(inner[path[-1]])
    elif choice == 6:
        inner["\x1b" if what % 2 else "x"] = value
    else:
        inner[path[-1]] = value
    return data


def _as_json(data):
    """Begin and end of the first JSON document in a text, and its value."""
    text = text_of(data)
    start = text.find("{")
    if start < 0:
        return None
    try:
        value, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return start, end, value


def damage(data, kind, at, what):
    """One damage of a text: where it is and what it is follow from the numbers, whatever they are."""
    place = at % (len(data) + 1)
    snippet = SNIPPETS[what % len(SNIPPETS)]
    kind %= 10
    if kind == 0:
        return data[:place]
    if kind == 1:
        return data[:place] + bytes([what % 256]) + data[place + 1 :]
    if kind == 2:
        return data[:place] + snippet + data[place:]
    if kind == 3:
        return data[:place] + snippet + data[place + len(snippet) :]
    if kind == 4:
        return data.replace(b"\n", b"\r\n" if what % 2 else b"\r")
    if kind in (5, 6):  # a number becomes another
        numbers = list(re.finditer(rb"-?\d+(?:\.\d+)?(?:e[+-]\d+)?", data[:200_000]))
        if not numbers:
            return snippet
        found = numbers[at % len(numbers)]
        return data[: found.start()] + snippet + data[found.end() :]
    if kind == 7:
        lines = data.splitlines(keepends=True) or [b""]
        here, there = at % len(lines), what % len(lines)
        if what % 3 == 0:
            del lines[here]
        elif what % 3 == 1:
            lines.insert(here, lines[here])
        else:
            lines[here], lines[there] = lines[there], lines[here]
        return b"".join(lines)
    document = _as_json(data)
    if document is None:
        return damage(data, kind - 6, at, what)
    start, end, value = document
    made = json.dumps(_set_node(value, at, what))
    text = text_of(data)
    return (text[:start] + made + text[end:]).encode("utf-8", "surrogatepass")


# --- invariants -----------------------------------------------------------------------------------


def finite(value):
    """Every number in a value is finite; mappings, sequences and dataclasses are looked into."""
    if isinstance(value, float):
        assert math.isfinite(value), value
    elif is_dataclass(value) and not isinstance(value, type):
        finite(asdict(value))
    elif isinstance(value, Mapping):
        for inner in value.values():
            finite(inner)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for inner in value:
            finite(inner)


def proper(output):
    """What a tool's parser returns can be judged: finite, positive, at least one phase."""
    assert output.phases
    assert isinstance(output.version, str)
    for phase in output.phases:
        assert phase.seconds > 0
        assert phase.rates
        for rate in phase.rates.values():
            assert math.isfinite(rate.value) and rate.value > 0, rate
        for count in (phase.bytes_moved, phase.operations, phase.transfer_bytes):
            assert count is None or (type(count) is int and count >= 0), phase
        assert all(math.isfinite(s) and s > 0 for s in phase.rank_seconds)
    finite(output.phases)
    finite(output.parameters)
    assert output.tasks is None or output.tasks >= 1
    assert output.nodes is None or output.nodes >= 1
    return output


# --- readers --------------------------------------------------------------------------------------


def _samples(*patterns):
    return [f.read_bytes() for p in patterns for f in sorted(DATA.glob(p))]


def _printed(file, word):
    """Recorded answers of lfs and lctl whose command holds a word."""
    found = [a.stdout + a.stderr for c, a in sessions(file).items() if word in c]
    assert found, (file, word)
    return [text.encode() for text in found]


def _lines(*lines):
    return ("\n".join(lines) + "\n").encode()


def _quiet():
    return Console(file=io.StringIO(), width=120)


def _file(data, name, read):
    with TemporaryDirectory() as folder:
        file = Path(folder, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return read(file)


def _yaml(data):
    return _file(data, "f.yaml", lambda file: repr(yamlfile.load(file)))


def _settings(data):
    def read(file):
        found = site_mistakes.find_mistakes("site", yamlfile.load(file))
        mistakes = yamlfile.located(file, found)
        for mistake in mistakes:
            assert str(file) in str(mistake)
        return mistakes

    return _file(data, "settings.yaml", read)


def _references(data):
    def read(file):
        found = references._parsed(file, (0, len(data)))
        references._parsed.cache_clear()
        for mistake in found.mistakes:
            assert str(file) in str(mistake)
        with suppress(references.ReferencesError):
            found.check("IorPosix", healthy.METRICS)
        found.unknown_checks(["IorPosix"])
        return found

    return _file(data, "references.yaml", read)


def _edit(data):
    return yamledit.put(
        text_of(data), ["IorPosix", "mysite:lustre", "write_bw"], [1, "MiB/s"]
    )


def _darshan(data):
    log = darshan.parse(text_of(data))
    finite(log)
    assert log.tasks >= 1 and log.run_seconds >= 0
    figures = of_log("log", log)
    found = logs.compare(figures, figures)
    json.loads(found.to_json())
    _quiet().print(found.render())
    return log


_NODES = needle.Rounds(direction="read", rounds=2, max_deviation=0.2, nodes=2)


def _needle_rounds(data):
    return proper(needle.parse_rounds(text_of(data), _NODES))


def _round_samples():
    result = (DATA / "samples" / "fio_randread.json").read_bytes()
    turns = [
        f"needle {turn} {host}\n".encode() for turn in (1, 2) for host in ("n1", "n2")
    ]
    return [b"".join(turn + result for turn in turns)]


def _ior_ranks(data):
    summary = _samples("samples/ior_i2.json")[0].decode()
    return proper(with_rank_times(parse_json(summary), text_of(data)))


def _runs_of_io500():
    """Each recorded run as one text: a line with the name before each file."""
    folders = sorted((DATA / "samples" / "io500").iterdir())
    return [
        b"".join(
            b"=== %s\n%s" % (file.name.encode(), file.read_bytes())
            for file in sorted(run.iterdir())
        )
        for run in folders
    ]


def _io500(data):
    parts = re.split(r"(?m)^=== (\S+)\n", text_of(data))
    files = dict(zip(parts[1::2], parts[2::2], strict=True))
    return proper(
        io500.parse(files.pop("result.txt", ""), files.pop("stdout.txt", ""), files)
    )


def _mdtest_ranks(data):
    found = parse_rank_csv(text_of(data), 2)
    proper(ToolOutput("mdtest", "", found))
    return found


def _layout(data):
    found = lov.parse_lov(data, "f")
    assert (found.osts or found.start is None) and found.last.stripe_bytes > 0
    noted = file_layout.Layouts(repetition=1, files=(found,), total=1)
    assert (
        file_layout.Layouts.from_json(json.loads(json.dumps(noted.to_json()))) == noted
    )
    return found


def _encoded():
    """Layouts in the binary form: plain, in a pool, progressive."""
    plain = {
        "count": 2,
        "size": 1 << 20,
        "objects": [0, 3],
        "pool": "",
        "begin": 0,
        "end": 1 << 24,
    }
    rest = {
        **plain,
        "count": -1,
        "objects": [],
        "begin": 1 << 24,
        "end": None,
        "init": False,
    }
    parts = [{**plain, "init": True}, rest]
    return [
        encoder.encode({"composite": False, "parts": [{**plain, "end": None}]}),
        encoder.encode({"composite": False, "parts": [{**plain, "pool": "flash"}]}),
        encoder.encode({"composite": True, "parts": parts}),
    ]


def _targets(data):
    """The same text as the answer of all programs that are asked for storage targets."""
    text = text_of(data)
    osts, shown = targets.parse_osts(text), targets.parse_df(text)
    return targets.join_targets(osts=osts, shown=shown, servers={})


def _mounts(data):
    mounts = parse_mountinfo(data.decode("utf-8", "surrogateescape"))
    for mount in mounts:
        inventory.safe_options(mount.options), inventory.safe_source(mount.source)
        fsname_of(mount.source)
        assert not identity.differ(identity.lustre_name(mount.source), "")
    return mounts


def _quota(data):
    parse_lfs_quotas(text_of(data))
    quota = parse_lfs_quota(text_of(data), "user 1")
    assert min(quota.bytes_left or 0, quota.files_left or 0) >= 0
    return quota


def _lctl(data):
    text = text_of(data)
    return parameters.facts_of(parse_parameters(text)), checksums.parse_params(text)


def _machine(data):
    """What the kernel says of itself."""
    return activity.parse_log(text_of(data), "lustre")


def _noted(data):
    """What the agents and the tasks of a node left in the stage."""
    with TemporaryDirectory() as folder:
        Path(folder, f"{observations.SEEN}.n1.jsonl").write_bytes(data)
        Path(folder, "tasks.n1").write_bytes(data)
        found = observations.read(Path(folder))
    told = [one for each in task_counters.witnesses(found).values() for one in each]
    heard = task_counters.TaskCounters(witnesses=tuple(told), expected=1)
    for names in (["8:0"], ["/nfs"], ["rig"]):
        heard.counted({"n1": names})
    (found.counts(observations.PRINTED), found.loaded())
    instants = found.instants(observations.MOVED)
    times.seconds_of_activity(instants, (0.0, 1e9), 0)
    run = stage.PhaseRun(1, "write", 0, 0.0, 1e9, "x")
    if one := series_of_instants(instants, "write", run, 10.0):
        assert all(map(math.isfinite, [one.mean, *one.windows]))
        assert all(0 <= dip.lowest < 0.5 for dip in one.dips)
    return found


LINE = json.dumps(RECORD).encode()
SELECTED = json.dumps({**RECORD} | {"selection": "-n x", "gate": True}).encode()


def _history(data):
    """A session's file, in all the ways in which the commands look at records."""

    def read(file):
        folder = file.parent.parent
        found = endings.SessionRecords(
            one for one in journal.read_whole(file) if isinstance(one, Record)
        )
        console = _quiet()
        console.print(outcome.table(found))
        assert found.ending(True).sentence and found.ending(True).status in (0, 1)
        with suppress(CompareError):
            side = sides.read(folder, "since=2000-01-01")
            both = sides.contrast(side, side)
            console.print(both.render())
            json.loads(both.to_json())
        with closing(query.connect(folder)) as history:
            columns = "median, spread, reference, lower, upper"
            for row in query.rows(history, columns, query.Condition("1")):
                finite(list(row))
        chosen = history_table.chosen(folder, query.Choice())
        console.print(outcome.table(chosen.records, dated=True))
        assert all(damaged.problem for damaged in chosen.damaged)
        return found

    return _file(data, "mysite/20270131T120000-n1-1.jsonl", read)


def _alarm(data):
    """A session's file, as the alarm, its page and JUnit take it; where a line is no record, there is trouble."""

    def read(file):
        lines = list(journal.read_whole(file))
        found = endings.SessionRecords(
            line for line in lines if isinstance(line, Record)
        )
        damaged = [line for line in lines if isinstance(line, journal.Damaged)]
        raised = news.collect(
            file.parent.parent, Asked(found, damaged=tuple(damaged)), gate=True
        )
        assert raised.failed or not damaged
        page.page(raised, found).encode()
        cases, _ = marks.read_marks(file.parent.parent, query.Choice())
        cases = marks.gravest_first(cases, raised.troubles)
        _quiet().print(marks.marks_table(cases))
        json.loads(marks.marks_json(cases, raised.ending))
        ElementTree.fromstring(export.junit(found, True, raised.ending))
        figure = page.TEMPLATES.get_template("figure.html").module
        for curve in raised.history.curves:
            ElementTree.fromstring(figure.drawing(curve))
        before = selected.seen_before(file.parent.parent, "mysite", "-n x")
        selected.gone(before, found, "mysite")
        return found

    return _file(data, "mysite/20270131T120000-n1-1.jsonl", read)


SETTINGS = [
    file.read_bytes() for file in sorted(ROOT.glob("site-configs/*/settings.yaml"))
]
_REFERENCES = [
    file.read_bytes() for file in sorted(ROOT.glob("site-configs/*/references.yaml"))
]
_YAML = [
    b"a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n",
    b"a: 2027-01-31\nb: [1_000, 0x1f, 1:30:00, 1.5e3, .nan, ~, yes]\nc: 'x'\nd: |\n  text\n  text\n",
]
_MOUNTINFO = _lines(
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro",
    r"30 22 0:25 / /mnt/a\040b rw - lustre 10.0.0.1@tcp:/scratch rw,flock",
    "31 22 0:26 / /s rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w",
)
_OSTS = _lines(
    "OBDS:",
    "0: lustre-OST0000_UUID ACTIVE",
    "1: lustre-OST0001_UUID INACTIVE",
    "lustre-OST0000_UUID     1933276       1668     1813972   1% /mnt/lustre[OST:0] f",
    "osc.lustre-OST0000-osc-ffff888.ost_conn_uuid=10.0.0.1@tcp",
    "lfs check: error: check 'lustre-OST0001-osc-ffff888': Resource temporarily unavailable (11)",
)

TOOL = (ToolOutputError,)


#: Parsers of what a tool prints: name, samples, the parser, a word of its errors.
_TOOLS = (
    ("ior.parse_json", "ior*.json", lambda text: parse_json(text, text[-400:]), "IOR"),
    (
        "mdtest.parse",
        "mdtest*.stdout",
        lambda text: parse_mdtest(
            text, _samples("samples/mdtest_ranks.csv")[0].decode()
        ),
        "mdtest",
    ),
    (
        "wrf.parse",
        "wrf_io*.txt",
        lambda text: wrf.parse(text, "/opt/wrf_header.txt"),
        "WRF-IO",
    ),
    ("fio.parse_json", "fio*", tools_output.parse_json, "fio"),
)


def _of_tool(name, files, parse, word):
    samples = _samples(f"samples/{files}")
    return Reader(name, samples, lambda data: proper(parse(text_of(data))), TOOL, word)


READERS = (
    *(_of_tool(*one) for one in _TOOLS),
    Reader(
        "ior.with_rank_times",
        _samples("samples/ior*.ranks.csv"),
        _ior_ranks,
        TOOL,
        "IOR",
    ),
    Reader(
        "mdtest.parse_rank_csv",
        _samples("samples/mdtest_ranks.csv"),
        _mdtest_ranks,
        TOOL,
        "mdtest",
    ),
    Reader("io500.parse", _runs_of_io500(), _io500, TOOL, "io500"),
    Reader("needle.parse_rounds", _round_samples(), _needle_rounds, TOOL, "needle"),
    Reader("darshan.parse", _samples("darshan/*.txt"), _darshan, TOOL, "darshan"),
    Reader("lov.parse", _encoded(), _layout, (LustreError,), "lustre.lov of f"),
    Reader(
        "lustre.join_targets",
        [_OSTS, *_printed("health.txt", "")],
        _targets,
        (LustreError,),
        "lfs",
    ),
    Reader("filesystem.parse_mountinfo", [_MOUNTINFO], _mounts),
    Reader(
        "filesystem.parse_lfs_quota",
        _printed("quota.txt", "quota"),
        _quota,
        (LustreError,),
        "lfs quota says",
    ),
    Reader(
        "load, fingerprint: lctl",
        _printed("load.txt", "") + _printed("params.txt", ""),
        _lctl,
    ),
    Reader(
        "load, fingerprint: kernel",
        [
            b"Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
            b"eth0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n",
            b"3,1200,5,-;LustreError: lustre-OST0000-osc-ffff8: Connection to lustre-OST0000 "
            b"(at 10.0.0.1@tcp) was lost; in progress\n",
        ],
        _machine,
    ),
    Reader(
        "observations.read",
        [
            b'[10.5, "counters", ["write.1", "before", {"8:0": [512, 1024, 3], "rig": null}]]\n'
            b'[12.5, "counters", ["write.1", "after", {"8:0": [512, 9216, 5]}]]\n',
            b'[11.0, "moved", [4096, 8192, 5, 65536]]\n[11.5, "moved", [4096, 16384, 6, 73728]]\n'
            b'[11.7, "loaded", ["libc.so.6"]]\n',
            b"write.1 0 10.51 12.42 12.45 4096 8192 2 4 0 8192 0 end\n",
        ],
        _noted,
    ),
    Reader(
        "history",
        [LINE, LINE + b"\n" + LINE + b"\n", b'{"schema":1}\n' + LINE[:300]],
        _history,
    ),
    Reader("alarm", [LINE, LINE + b"\n" + LINE + b"\n", SELECTED], _alarm),
    Reader("yamlfile.load", _YAML + _REFERENCES[:1], _yaml, (YamlError,), "f.yaml"),
    Reader("site settings", SETTINGS, _settings, (YamlError,), "settings.yaml"),
    Reader("references", _REFERENCES, _references),
    Reader("yamledit.put", _YAML + _REFERENCES[:2], _edit, (Refused,)),
)
BY_NAME = {reader.name: reader for reader in READERS}


def check(reader, data):
    """Whether the reader found a value; raises what is neither a value nor its named error."""
    try:
        reader.read(data)
    except reader.errors as error:
        # Not of another name by inheritance: a plain ValueError is not ToolOutputError.
        assert str(error), type(error)
        assert not reader.names or re.search(reader.names, str(error)), str(error)
        return False
    return True
