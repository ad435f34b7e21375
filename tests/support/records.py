"""Records of cases, as JSON and as what is read of it; each test changes what matters to it."""

import copy
import json
from datetime import datetime, timedelta, timezone

from iogauge.records import journal
from iogauge.records.record import Record

METRIC = {
    "name": "write_bw",
    "unit": "MiB/s",
    "better": "more",
    "samples": [540.0, 541.5],
    "median": 540.75,
    "spread": 0.002,
    "verdict": "PASS",
    "reason": "median 540.8 MiB/s",
    "cold": 500.0,
    "ceiling": 600.0,
    "ceiling_from": "1 device(s)",
    "reference": {
        "value": 500.0,
        "lower": -0.1,
        "upper": None,
        "unit": "MiB/s",
        "source": "acceptance",
        "xfail": None,
    },
}
FINDING = {
    "guard": "G4",
    "outcome": "warn",
    "metric": "write_bw",
    "saw": "the shortest repetition lasted 1.46 s",
    "demands": "30 s",
    "remedy": "more data",
}
RECORD = {
    "schema": 1,
    "session": "20270131T120000-n1-1",
    "time": "2027-01-31T12:00:00Z",
    "gate": False,
    "system": "mysite",
    "partition": "lustre",
    "environment": "default",
    "check": "IorPosix",
    "case": "IorPosix %files=shared %order=sequential",
    "hash": "0a1b2c3d",
    "verdict": "PASS",
    "reason": "write_bw: median 540 MiB/s",
    "expected": False,
    "tier": "daily",
    "variant": "sound",
    "nodes": 1,
    "tasks_per_node": 2,
    "repetitions": 2,
    "parameters": {"files": "shared", "order": "sequential"},
    "overridden": {},
    "price": {
        "source": "list",
        "currency": "EUR",
        "per_gb_month": 0.1,
        "capacity": 10**12,
    },
    "target": {"path": "/s", "type": "ext4", "source": None},
    "tools": ["ior 4.0.0"],
    "stack": {"fingerprint": "92718f76de22", "hashes": {"ior": "i"}},
    "commands": ["ior -a POSIX"],
    "line": "0123456789ab",
    "series": "ba9876543210",
    "fingerprint": {"kernel": "6.1", "nodes": "n1", "cpu.cores": 4, "cpu.smt": True},
    "metrics": [METRIC],
    "findings": [FINDING],
}


def metric(name="write_bw", verdict="PASS", **change):
    """JSON of a metric; a FAIL or PASS has a reference."""
    return copy.deepcopy({**METRIC, "name": name, "verdict": verdict, **change})


def values(verdict="PASS", **change):
    """JSON of a record without findings; its line and its series follow from the rest."""
    plain = {
        **RECORD,
        "verdict": verdict,
        "metrics": [metric(verdict=verdict)],
        "findings": [],
    }
    made = copy.deepcopy({**plain, "line": None, "series": None, **change})
    made_of = Record.from_json(made)
    made["line"], made["series"] = made_of.line, made_of.series
    return made


def record(verdict="PASS", **change):
    """A record as it is read."""
    return Record.from_json(values(verdict, **change))


def append(file, made):
    """Append a line of JSON to a session's file, whatever it holds."""
    line = json.dumps({"schema": 1, **made}, allow_nan=False, separators=(",", ":"))
    journal.append(file, line.encode())


#: The first of many nights.
FIRST = datetime(2027, 1, 1, 2, tzinfo=timezone.utc)


def night(day, value=100.0, verdict="PASS", **more):
    """A record of a case that one of many nights measured, with a reference of 100 MiB/s."""
    partition = more.get("partition", "scratch")
    reference = METRIC["reference"] | {"value": 100.0}
    measured = metric(verdict=verdict, median=value, reference=reference, spread=0.01)
    plain = {
        "session": f"s{day:03}-{partition}",
        "time": f"{FIRST + timedelta(days=day):%Y-%m-%dT%H:%M:%SZ}",
        "system": "site",
        "partition": partition,
        "case": "IorPosix %files=shared",
        "fingerprint": {"kernel": "5.14"},
        "metrics": [measured],
    }
    return record(verdict, **plain | more)
