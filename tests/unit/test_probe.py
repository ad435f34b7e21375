"""Probes between the sessions: factors and slow times from lines, the load on a real directory, and what it refuses."""

import contextlib
import os
import random
import threading
import time
from datetime import datetime, timezone

import pytest

from e2e.rig import wait_for
from iogauge.core import processes
from iogauge.core.paths import project_root
from iogauge.job import opening
from iogauge.node import view
from iogauge.node.kinds import Kind
from iogauge.workspace import directory, lock
from iogauge_extras.page import page
from iogauge_extras.probe import (
    probe_command,
    probe_lines,
    slowdown,
    small_load,
)
from iogauge_extras.probe.slowdown import NEEDED, Line
from support import extras as support_extras
from support import records
from support.orders import job_order

MINUTES = 5 * 60
START = 1_795_000_000


def lines_of(count, noise, slow=None, start=START):
    """Probes every five minutes with log-normal noise; ``slow`` gives the factors of data and metadata of some."""
    source = random.Random(f"{count} {noise}")
    kept = []
    for number in range(count):
        data, metadata = (slow or {}).get(number, (1, 1))
        own = [source.lognormvariate(0, noise) for _ in range(5)]
        line = Line(
            time=start + number * MINUTES,
            write=200 * own[0] / data,
            read=400 * own[1] / data,
            read_ms=0.1 * own[2] * data,
            create=2000 * own[3] / metadata,
            unlink=4000 * own[4] / metadata,
        )
        kept.append(slowdown.compare(line, kept))
    return kept


def test_three_planted_times_are_found_with_their_group_and_nothing_else():
    planted = dict.fromkeys(range(100, 112), (4, 4))
    planted |= dict.fromkeys(range(160, 170), (1, 6))
    planted |= dict.fromkeys(range(220, 224), (3, 1))
    lines = lines_of(288, 0.25, planted)
    found = list(slowdown.stretches(lines))
    assert [(s.start - START) // MINUTES for s in found] == [100, 160, 220]
    assert [(s.end - START) // MINUTES for s in found] == [111, 169, 223]
    assert [max(s.factors, key=s.factors.get) for s in found][1:] == [
        "metadata",
        "data",
    ]
    assert slowdown.current(lines) is None
    assert slowdown.current(lines[:163]).start == START + 160 * MINUTES
    assert slowdown.current(lines[:162]) is None


def test_healthy_probes_raise_no_alarm():
    assert list(slowdown.stretches(lines_of(500, 0.6))) == []


def test_real_probes_under_load_raise_no_alarm_and_a_slow_time_among_them_does():
    """Recorded on a healthy disk at a load of 10 to 20 on two cores."""
    rows = (project_root() / "tests/data/probes.tsv").read_text().splitlines()[1:501]
    kept = []
    for number, row in enumerate(rows):
        figures = [float(word) for word in row.split()]
        slower = 3 if 300 <= number < 306 else 1
        line = Line(
            time=START + number * MINUTES,
            write=figures[0] / slower,
            read=figures[1] / slower,
            read_ms=figures[2] * slower,
            create=figures[3],
            unlink=figures[4],
        )
        kept.append(slowdown.compare(line, kept))
    assert len(kept) == 500
    (found,) = slowdown.stretches(kept)
    assert 300 <= (found.start - START) // MINUTES < 304
    assert (found.end - START) // MINUTES == 305


def test_one_outlier_in_a_young_baseline_hides_no_slow_time():
    planted = {10: (8, 8)} | dict.fromkeys(range(60, 72), (3, 3))
    lines = lines_of(72, 0.25, planted)
    (found,) = slowdown.stretches(lines)
    assert (found.start, found.end) == (lines[60].time, lines[71].time)


def test_a_slow_target_is_usual_only_after_a_week():
    week = 7 * 24 * 12
    slow = dict.fromkeys(range(200, 2 * week), (4, 4))
    now = START + (week + 100) * MINUTES
    lines = [
        Line(time=START + n * MINUTES, write=100.0, slow=("data",) * (n in slow))
        for n in range(week + 100)
    ]
    assert {line.slow for line in slowdown.baseline(lines, now)} == {()}
    later = slowdown.baseline(lines, now + 8 * 24 * 3600)
    assert {line.slow for line in later} == {(), ("data",)}


def test_the_same_hour_of_the_week_counts_if_it_has_enough_probes():
    """Nightly backups make each night slow: at night they are usual, by day they are not."""
    lines = []
    for number in range(14 * 24 * 12):
        night = number // 12 % 24 < 4
        lines.append(
            Line(time=START + number * MINUTES, write=100.0 / (3 if night else 1))
        )
    night = Line(time=START + 14 * 24 * 12 * MINUTES + 3600, write=33.0)
    day = Line(time=START + 14 * 24 * 12 * MINUTES + 10 * 3600, write=33.0)
    night, day = (slowdown.compare(line, lines) for line in (night, day))
    assert (night.factors, night.slow) == ({"data": 1.01}, ())
    assert (day.factors, day.slow) == ({"data": 3.03}, ("data",))


def test_no_answer_is_slow_and_says_so(extras):
    lines = [Line(time=START + n, problem="no answer") for n in range(3)]
    assert slowdown.current(lines[:2]) is None
    for line in lines:
        probe_lines.append(probe_lines.folder("s", "p") / os.uname().nodename, line)
    assert probe_command._state("s:p", START + 2).text.endswith(": no answer")


def test_damaged_lines_are_left_out_and_old_months_become_hours(tmp_path, monkeypatch):
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))
    node = probe_lines.folder("mine", "mnt") / "n1"
    lines = lines_of(288, 0.1)
    for line in lines:
        probe_lines.append(node, line)
    file = next(node.iterdir())
    file.write_text(file.read_text() + '{"time": "x"}\nnot JSON\n')
    now = lines[-1].time
    written = [line.to_json() for line in probe_lines.recent(node, now)]
    assert written == [line.to_json() for line in lines]
    assert 200 < file.stat().st_size / 288 < 300
    probe_lines.fold(node, now)
    assert file.exists()
    probe_lines.fold(node, now + 70 * 24 * 3600)
    hours = probe_lines.recent(node, now)
    assert not file.exists()
    assert 24 <= len(hours) <= 25
    assert sum(line.probes for line in hours) == 288
    # Another probe folded it meanwhile.
    file.symlink_to("gone")
    probe_lines.fold(node, now + 70 * 24 * 3600)
    assert probe_lines.recent(node, now) == hours


@pytest.fixture
def extras(tmp_path, monkeypatch):
    """The partition of a target in the test's directory, of the type that it has."""
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path / "home"))
    target = tmp_path / "target"
    target.mkdir()
    kind = view.look(str(target)).mount.type
    return support_extras.extras(
        target={"path": str(target), "type": kind, "source": None}
    )


def test_a_probe_keeps_a_line_with_its_factors_and_leaves_nothing_on_the_target(extras):
    now = int(time.time())
    node = probe_lines.folder("mine", "mnt") / os.uname().nodename
    state = probe_command.probe_once("mine:mnt", extras, now - 2)
    assert (state.status, f"1 of {NEEDED} probes" in state.text) == (3, True)
    for number in range(1, NEEDED):
        fast = Line(time=now - number * MINUTES, write=1e9, create=1e9, unlink=1e9)
        probe_lines.append(node, fast)
    state = probe_command.probe_once("mine:mnt", extras, now)
    kept = probe_lines.recent(node, now)[-1]
    assert kept.factors == state.factors
    assert set(kept.slow) == {"data", "metadata"}
    assert min(kept.write, kept.create, kept.unlink) > 0
    assert kept.moved <= 64 << 20
    assert os.listdir(extras.target.path) == []


def test_nothing_is_probed_while_a_case_holds_the_target_or_beyond_the_budget(extras):
    path = extras.target.path
    details = lock.describe(session="s", case="c", lease_s=120, processes=[os.getpid()])
    held = lock.Lock(path, details)
    assert held.try_take()
    now = int(time.time())
    state = probe_command.probe_once("mine:mnt", extras, now)
    assert state.text.startswith("not probed: a case holds the target")
    assert state.status == 0
    held.release()
    small = extras.model_copy(
        update={"probe": extras.probe.model_copy(update={"bytes_a_day": 1})}
    )
    probe_command.probe_once("mine:mnt", small, now)
    state = probe_command.probe_once("mine:mnt", small, now + 1)
    assert "not probed" in state.text and "probe.bytes_a_day" in state.text


def test_a_case_waits_for_a_probe_and_a_probe_gives_way_to_a_case(extras):
    """The probe makes its directory before it looks at the lock, the case looks for it after it has the lock."""
    path = extras.target.path
    place = directory.create(path, f"{lock.PROBE}n1-1", "probe")
    pauses = []

    def ended(seconds):
        pauses.append(seconds)
        directory.remove(os.path.dirname(place))

    lock.await_probes(path, ended)
    assert len(pauses) == 1
    lock.await_probes(path, pytest.fail)
    # What a killed probe left is not waited for.
    place = directory.create(path, f"{lock.PROBE}n1-2", "probe")
    os.utime(place, (0, time.time() - 90))
    lock.await_probes(path, pytest.fail)
    directory.remove(os.path.dirname(place))
    details = lock.describe(session="s", case="c", lease_s=120, processes=[os.getpid()])
    held = lock.Lock(path, details)
    assert held.try_take()
    with pytest.raises(probe_command.Held, match="session s"):
        probe_command._load(extras, [path], 0, pytest.fail)
    held.release()
    assert os.listdir(path) == []


def test_a_probe_reports_each_answer_of_its_target(extras, monkeypatch):
    """A busy node takes long over a probe that no storage delays: only a target that is silent is slow."""
    reports = []

    def watch(path, work, progress):
        return work(reports.append)

    monkeypatch.setattr(processes, "watch", watch)
    probe_command.probe_once("mine:mnt", extras, START)
    # Blocks written and read, small reads, files made and removed: of each more than one.
    assert len(reports) > 10


def test_a_case_enters_its_target_when_the_probe_there_has_ended(tmp_path, monkeypatch):
    """Its own directory is made after that of the probe has gone."""
    monkeypatch.chdir(tmp_path)
    path = str(tmp_path / "target")
    os.mkdir(path)
    place = directory.create(path, f"{lock.PROBE}n1-1", "probe")
    order = job_order(path, type=view.look(path).mount.type, process=None)
    entered = []

    def enter():
        with contextlib.ExitStack() as leaving:
            entered.append(opening.prepare(order, leaving))

    case = threading.Thread(target=enter)
    case.start()
    wait_for(lambda: lock.standing(path), 30, "the lock of the case")
    made = os.path.join(directory.session_dir(path, order.session), order.case)
    time.sleep(1)
    assert not os.path.exists(made)
    directory.remove(os.path.dirname(place))
    case.join()
    assert entered[0].refused == () and os.path.exists(made)


def test_another_file_system_in_the_targets_place_is_refused(extras):
    other = extras.model_copy(
        update={
            "target": extras.target.model_copy(
                update={"uuid": "00000000-0000-4000-8000-000000000000", "type": "xfs"}
            )
        }
    )
    with pytest.raises(OSError, match="demanded: type xfs"):
        probe_command.probe_once("mine:mnt", other, int(time.time()))


def test_a_read_that_a_cache_answers_does_not_count(tmp_path):
    """Without O_DIRECT, and with a client whose cache cannot be emptied, there is no figure of a read."""
    line = small_load.measure(str(tmp_path), Kind(), START)
    assert (line.read, line.read_ms) == (0, 0)
    assert "target.cache: opaque" in line.unproven
    assert min(line.write, line.create, line.unlink) > 0


def test_wrong_data_are_a_line_of_their_own(extras, monkeypatch):
    read = os.preadv

    def forged(fd, buffers, place):
        count = read(fd, buffers, place)
        buffers[0][:4096] = os.urandom(4096)
        return count

    monkeypatch.setattr(small_load.os, "preadv", forged)
    probe_command.probe_once("mine:mnt", extras, int(time.time()))
    node = probe_lines.folder("mine", "mnt") / os.uname().nodename
    (line,) = probe_lines.recent(node, int(time.time()))
    assert "not what was written" in line.problem


def test_others_say_whom_a_slow_target_concerns(extras):
    now = int(time.time())
    slow = dict.fromkeys(range(90, 100), (5, 5))
    start = now - 99 * MINUTES
    own = os.uname().nodename
    for name, planted in ((own, slow), ("n2", slow), ("n3", None)):
        for line in lines_of(100, 0.1, planted, start):
            probe_lines.append(probe_lines.folder("mine", "mnt") / name, line)
    state = probe_command._state("mine:mnt", now)
    assert "n2" not in state.text
    assert state.status == 2
    assert "n3: as usual" in str(state)
    quoted = probe_command.while_it_ran("mine", "mnt", start, start + 95 * MINUTES)
    assert quoted.count("slow between") == 2
    assert probe_command.while_it_ran("mine", "mnt", start, start + 80 * MINUTES) == ""
    time_of = datetime.fromtimestamp(now, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    made = records.record(system="mine", partition="mnt", time=time_of)
    ((_, facts),) = page.places_of([made])
    assert facts["probes"].count("slow between") == 2
    labels = f'node="{own}",place="mine:mnt"'
    assert f"iogauge_probe_slow{{{labels}}} 1\n" in probe_command.openmetrics([state])
