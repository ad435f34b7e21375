"""Which tests notice which defects? Makes defects from the source, and runs the unit tests that reach each.

    python benchmarks/mutate.py [ROOM...] [--count N] [--seed N] [--tests FILE...] [--matrix FILE] [--record FILE]

A comparison is turned or its limit moved, a condition dropped, a number changed by one, a statement left out. Each
defect is made in a fork of this process in which all tests have been collected: the code of a function is exchanged, and
the tests whose run passed its line run again. Prints what no test noticed, and the share of what was noticed.
``--matrix`` writes a line of JSON for each defect with all tests that noticed it; ``--record`` writes it with the
quickest of them, as `mutants.py` reads it from `defects.jsonl`.

What runs as a process of its own, or only once when a module is imported, is not reached; `mutants.py` plants
by hand what must be noticed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import functools
import gc
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "reframe" / "src"
ROOMS = (
    "iogauge/guards",
    "iogauge/evidence",
    "iogauge/judge",
    "iogauge/tools",
    "iogauge/site",
)
#: Seconds that the tests of a defect may take; a loop without an end is noticed so.
PATIENCE_S = 60
#: Of the tests that reach a line, so many of the shortest run.
TESTS = 120
#: Of pytest: no other process, and nothing is left.
OPTIONS = ("-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={ROOT}")
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_SWAPPED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True)
class Defect:
    """A change of one node of a file's tree: its place in the order of the tree, and what becomes of it.

    ``function`` and ``text``, the source's line, say where it is after other lines have changed.
    """

    file: Path
    line: int
    node: int
    kind: str
    function: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.file.relative_to(SOURCE)}:{self.line} {self.kind}"

    @property
    def place(self) -> tuple[str, str, str, str]:
        """What finds the defect again in a changed file."""
        return str(self.file.relative_to(SOURCE)), self.function, self.text, self.kind


def changed(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What could be wrong instead of a node: a word for it, and the other node."""
    new: Any = copy.deepcopy(node)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _TURNED:
        new.ops[0] = _TURNED[type(node.ops[0])]()
        yield f"{type(node.ops[0]).__name__} is {type(new.ops[0]).__name__}", new
    elif isinstance(node, ast.BoolOp):
        new.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"{type(node.op).__name__} is {type(new.op).__name__}", new
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        new.test = ast.Constant(False)
        yield "never", new
        if isinstance(node, ast.If):
            yield (
                "always",
                ast.copy_location(
                    ast.If(ast.Constant(True), new.body, new.orelse), node
                ),
            )
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "without not", new.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in _SWAPPED:
        new.op = _SWAPPED[type(node.op)]()
        yield f"{type(node.op).__name__} is {type(new.op).__name__}", new
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield f"{node.value} is {node.value + 1}", ast.Constant(node.value + 1)
    elif isinstance(node, ast.Return) and node.value and not _is_none(node.value):
        yield "returns None", ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Raise) or (
        isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
    ):
        yield "left out", ast.Pass()
    elif isinstance(node, ast.comprehension) and node.ifs:
        new.ifs = new.ifs[1:]
        yield "all of them", new


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def defects_of(file: Path) -> list[Defect]:
    """All defects that can be made in the functions of a file."""
    source = file.read_text(encoding="utf-8")
    tree, lines = ast.parse(source), source.splitlines()
    number = {id(node): index for index, node in enumerate(ast.walk(tree))}
    found: list[Defect] = []

    def look(node: ast.AST, function: str, inside: bool, line: int) -> None:
        line = getattr(node, "lineno", line)
        if inside:
            place = function, lines[line - 1].strip()
            found.extend(
                Defect(file, line, number[id(node)], kind, *place)
                for kind, _ in changed(node)
            )
        body: list[ast.AST] = []
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            function = f"{function}.{getattr(node, 'name', 'lambda')}".strip(".")
            if not isinstance(node, ast.ClassDef):
                body = [*node.body] if isinstance(node.body, list) else [node.body]
        for child in ast.iter_child_nodes(node):
            look(child, function, inside or child in body, line)

    look(tree, "", False, 1)
    return found


def planted(defect: Defect) -> ast.Module:
    """The tree of the file with the defect."""
    tree = ast.parse(defect.file.read_text(encoding="utf-8"))
    old = list(ast.walk(tree))[defect.node]
    (new,) = (new for kind, new in changed(old) if kind == defect.kind)

    class Plant(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return (
                ast.copy_location(new, node)
                if node is old
                else self.generic_visit(node)
            )

    return ast.fix_missing_locations(Plant().visit(tree))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _name(code: CodeType) -> str:
    """The name of a function within its module; before Python 3.11 its own."""
    return str(getattr(code, "co_qualname", code.co_name))


class Functions:
    """The functions of the library that exist, by file, and what remembers answers."""

    def __init__(self) -> None:
        gc.unfreeze()
        self.of_file: dict[str, list[FunctionType]] = {}
        self.caches: list[Any] = []
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType):
                self.of_file.setdefault(thing.__code__.co_filename, []).append(thing)
            elif isinstance(thing, functools._lru_cache_wrapper):
                self.caches.append(thing)
        gc.freeze()

    def exchange(self, file: Path, whole: CodeType) -> None:
        """Give all functions of a file the code that they have in another compilation of it; forget answers."""
        new: dict[str, list[CodeType]] = {}
        for code in _codes(whole):
            new.setdefault(_name(code), []).append(code)
        for function in self.of_file.get(str(file), ()):
            old = function.__code__
            same = new.get(_name(old), [])
            # Lines move with what is planted above; of two of one name only those in their places are known.
            same = (
                same
                if len(same) == 1
                else [one for one in same if one.co_firstlineno == old.co_firstlineno]
            )
            if len(same) == 1 and same[0].co_freevars == old.co_freevars:
                function.__code__ = same[0]
        for cache in self.caches:
            cache.cache_clear()


class Lines:
    """Which lines of the library a test passes."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.passed: set[tuple[str, int]] = set()

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(self.prefix):
            return None
        passed = self.passed

        def line(frame: FrameType, event: str, argument: object) -> Any:
            passed.add((file, frame.f_lineno))
            return line

        passed.add((file, frame.f_lineno))
        return line


class Harness:
    """Takes the place of pytest's loop over the tests."""

    def __init__(
        self, defects: list[Defect], matrix: Path | None, record: Path | None, jobs: int
    ) -> None:
        self.defects, self.matrix, self.record, self.jobs = (
            defects,
            matrix,
            record,
            jobs,
        )
        self.failed = False
        self.survivors: list[Defect] = []
        self.noticed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed

    def _passes(self, item: pytest.Item) -> bool:
        self.failed = False
        from _pytest.runner import runtestprotocol

        for report in runtestprotocol(item, log=False, nextitem=None):
            self.failed |= report.failed
        return not self.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        reached: dict[tuple[str, int], list[int]] = {}
        cost: dict[int, float] = {}
        lines_of: dict[str, list[str]] = {}
        for number, item in enumerate(session.items):
            tracer = Lines(str(SOURCE))
            began = time.monotonic()
            sys.settrace(tracer)
            try:
                sound = self._passes(item)
            finally:
                sys.settrace(None)
            cost[number] = time.monotonic() - began
            if not sound:
                print(
                    f"not counted, as it fails without a defect: {item.nodeid}",
                    flush=True,
                )
                continue
            for place in tracer.passed:
                reached.setdefault(place, []).append(number)
            if self.matrix:
                lines_of[item.nodeid] = [
                    f"{Path(f).relative_to(SOURCE)}:{n}"
                    for f, n in sorted(tracer.passed)
                ]
        if self.matrix:
            self.matrix.with_suffix(".lines").write_text(json.dumps(lines_of))
        self.functions = Functions()
        running: dict[int, tuple[Defect, int, list[int]]] = {}
        for defect in self.defects:
            tests = sorted(
                reached.get((str(defect.file), defect.line), ()), key=cost.__getitem__
            )
            if not tests:
                self._tell(defect, None)
                continue
            while len(running) >= self.jobs:
                self._collect(session, running)
            tests = tests[:TESTS]
            ours, theirs = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(ours)
                self._try(session, defect, tests, theirs)
            os.close(theirs)
            running[pid] = (defect, ours, tests)
        while running:
            self._collect(session, running)
        return True

    def _try(
        self, session: pytest.Session, defect: Defect, tests: list[int], told: int
    ) -> None:
        """In a fork: run tests, tell the numbers of those that fail."""
        with open(os.devnull, "w") as null:
            os.dup2(null.fileno(), 1)
            os.dup2(null.fileno(), 2)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE_S)
        try:
            self.functions.exchange(
                defect.file, compile(planted(defect), str(defect.file), "exec")
            )
            for number in tests:
                os.write(told, b"? %d\n" % number)
                if not self._passes(session.items[number]):
                    os.write(told, b"! %d\n" % number)
                    if not self.matrix:
                        break
            os.write(told, b".\n")
        finally:
            os._exit(0)

    def _collect(
        self, session: pytest.Session, running: dict[int, tuple[Defect, int, list[int]]]
    ) -> None:
        pid, _ = os.wait()
        if pid not in running:
            return
        defect, ours, _ = running.pop(pid)
        with open(ours) as pipe:
            lines = pipe.read().split("\n")[:-1]
        found = [int(line[2:]) for line in lines if line.startswith("!")]
        if lines and lines[-1] != "." and lines[-1].startswith("?"):
            found.append(int(lines[-1][2:]))
        self._tell(defect, [session.items[number].nodeid for number in found])

    def _tell(self, defect: Defect, tests: list[str] | None) -> None:
        self.noticed += bool(tests)
        if not tests:
            self.survivors.append(defect)
            print(
                f"{'NOT REACHED' if tests is None else 'SURVIVED'}: {defect.name}",
                flush=True,
            )
        if self.matrix:
            with self.matrix.open("a") as file:
                file.write(json.dumps([defect.name, tests]) + "\n")
        if self.record and tests:
            with self.record.open("a") as file:
                file.write(
                    json.dumps([*defect.place, tests[0].partition("[")[0]]) + "\n"
                )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "rooms", nargs="*", metavar="ROOM", help=f"by default {' '.join(ROOMS)}"
    )
    parser.add_argument(
        "--count", type=int, default=350, metavar="N", help="defects (350)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which of all")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="defects at a time"
    )
    parser.add_argument("--tests", nargs="+", default=["tests/unit"], metavar="FILE")
    parser.add_argument(
        "--matrix", type=Path, metavar="FILE", help="all tests that notice each"
    )
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="the quickest test for each"
    )
    options = parser.parse_args()
    files = sorted(
        file
        for room in options.rooms or ROOMS
        for file in SOURCE.glob(f"{room}/**/*.py")
    )
    found = [defect for file in files for defect in defects_of(file)]
    chosen = random.Random(options.seed).sample(found, min(options.count, len(found)))
    print(
        f"mutate: {len(chosen)} of {len(found)} defects in {len(files)} files",
        flush=True,
    )
    harness = Harness(
        sorted(chosen, key=lambda one: (one.file, one.line)),
        options.matrix,
        options.record,
        options.jobs,
    )
    os.chdir(ROOT)
    pytest.main(["-q", "-m", "not slow", *OPTIONS, *options.tests], plugins=[harness])
    print(f"mutate: {harness.noticed} of {len(chosen)} noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
