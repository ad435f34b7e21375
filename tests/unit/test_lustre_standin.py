"""The stand-ins for lfs and lctl answer as the real programs did: else tests that use them prove nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support import hanging
from support.lustre.recorded import Answer, answer, sessions

MIB = 1 << 20
PROGRAMS = Path(__file__).parents[1] / "support" / "lustre"


class Place:
    """A directory that counts as a Lustre file system."""

    def __init__(self, top: Path) -> None:
        self.mount, self.top = top / "lustre", top
        self.mount.mkdir()
        self.environment = {
            **os.environ,
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "LFS_STATE": str(top / "state"),
            "LFS_MOUNT": str(self.mount),
            "LCTL_USER": "0",
        }

    def run(self, command: str, **variables: str) -> Answer:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.mount,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        return Answer(done.stdout, done.stderr, done.returncode)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def words(text: str) -> str:
    """Text without what differs from one file system, and one file, to the next."""
    text = re.sub(r"0x[0-9a-f]+:0x[0-9a-f]+:0x0", "FID", text)
    text = re.sub(r"(\t +\d+)\t +\d+\t +0x[0-9a-f]+\t +0x[0-9a-f]+", r"\1 OBJECT", text)
    return re.sub(r"-ffff[0-9a-f]+", "-CLIENT", text)


def alike(ours: Answer, theirs: Answer, mount: Path | None = None) -> None:
    """The same words, and the same status."""
    assert words(ours.stdout.replace(str(mount), "/mnt/lustre")) == words(theirs.stdout)
    assert words(ours.stderr) == words(theirs.stderr)
    assert ours.status == theirs.status


@pytest.mark.parametrize(
    ("made", "name"), [("-c 4 -S 1M -i 2", "w4"), ("-c 2 -S 4M -i 1", "w2i1"), ("-o 0,2", "o02")]
)
def test_a_plain_layout_is_shown_alike(place: Place, made: str, name: str) -> None:
    assert place.run(f"lfs setstripe {made} {name}") == Answer("", "", 0)
    for option in ("", "-y "):
        command = f"lfs getstripe {option}{name}"
        alike(place.run(command), answer("getstripe.txt", command))


def test_a_progressive_layout_is_shown_alike(place: Place) -> None:
    place.environment["LFS_FIRST"] = "0"
    place.run("lfs setstripe -E 1M -c 1 -i 3 -E 64M -c 2 -E -1 -c 4 pfl")
    alike(place.run("lfs getstripe -y pfl"), answer("getstripe.txt", "lfs getstripe -y pfl"))
    place.run("mkdir dpfl; lfs setstripe -E 1M -c 1 -E -1 -c -1 dpfl; touch dpfl/f")
    for command in ("lfs getstripe dpfl/f", "lfs getstripe -y dpfl/f"):
        alike(place.run(command), answer("getstripe.txt", command))


SETSTRIPE = [c for c in sessions("setstripe.txt") if c.startswith("lfs setstripe")]


@pytest.mark.parametrize("command", SETSTRIPE)
def test_setstripe_succeeds_and_fails_alike(place: Place, tmp_path: Path, command: str) -> None:
    place.run("lfs setstripe -c 4 -i 0 w4; mkdir d4", LFS_FIRST="1")
    run = command.replace("/tmp/e14", str(tmp_path / "e14"))
    ours = place.run(run, LFS_POOLS="flash:0,1")
    ours = Answer(ours.stdout, ours.stderr.replace(str(tmp_path), "/tmp"), ours.status)
    theirs = answer("setstripe.txt", command)
    alike(ours, theirs)
    assert (tmp_path / "e14").exists() == ("/tmp/e14" in command)


@pytest.mark.parametrize("command", [c for c in sessions("setstripe.txt") if "lfs mkdir" in c])
def test_mkdir_fails_alike(place: Place, command: str) -> None:
    place.run("mkdir plain cap")
    variables = {"LCTL_USER": "1"} if "user" in command else {}
    run = command.removeprefix("(user bench) ").replace("/mnt/lustre", str(place.mount))
    ours = place.run(run, **variables)
    stderr = ours.stderr.replace(str(place.mount), "/mnt/lustre")
    alike(Answer(ours.stdout, stderr, ours.status), answer("setstripe.txt", command))


STATES: Mapping[str, Mapping[str, str]] = {
    "": {},
    "OST 2 inactive": {"LFS_INACTIVE": "2"},
    "OST 1 degraded": {"LFS_DEGRADED": "1"},
    "OST 2 no_create": {"LFS_NO_CREATE": "2"},
    "OST 3 full": {"LFS_FULL": "3"},
    "not mounted": {"LFS_MOUNT": ""},
}


@pytest.mark.parametrize("command", [c for c in sessions("health.txt") if "-p" not in c.split()])
def test_the_state_of_the_targets_is_told_alike(place: Place, command: str) -> None:
    run, _, state = command.partition(" # ")
    ours = place.run(run.replace("/mnt/lustre", str(place.mount)), **STATES[state])
    theirs = answer("health.txt", command)
    stdout = ours.stdout.replace(str(place.mount), "/mnt/lustre")
    assert ours.status == theirs.status
    assert words(ours.stderr) == words(theirs.stderr)
    if "UUID" in theirs.stdout and run.startswith("lfs df"):
        # Sizes differ, so that numbers are compared by where they end.
        assert [[m.end() for m in re.finditer(r"\S+", line)] for line in stdout.splitlines()] == [
            [m.end() for m in re.finditer(r"\S+", line)] for line in theirs.stdout.splitlines()
        ]
        assert re.sub(r"\d+", "#", " ".join(stdout.split())) == re.sub(
            r"\d+", "#", " ".join(theirs.stdout.split())
        )
    else:
        assert words(stdout) == words(theirs.stdout)


@pytest.mark.parametrize("command", list(sessions("lctl.txt")))
def test_lctl_answers_alike(place: Place, command: str) -> None:
    place.run("lctl set_param osc.*.checksums=0")
    run, _, state = command.removeprefix("(user bench) ").partition(" # ")
    variables = dict(STATES[state])
    if "user" in command:
        variables["LCTL_USER"] = "1"
    if "stats" in command:
        variables["LFS_MOUNT"] = ""
    if " -n osc" in command:
        place.run("lctl set_param osc.*.checksums=1")
    alike(place.run(run, **variables), answer("lctl.txt", command))


def test_a_target_that_takes_no_files_gives_the_next_one_and_success(place: Place) -> None:
    made = place.run("lfs setstripe -c 1 -i 2 f", LFS_NO_CREATE="2")
    assert made == Answer("", "", 0)
    assert place.run("lfs getstripe -i f").stdout == "3\n\n"


@pytest.mark.parametrize("command", ["lfs df -h", "lfs setstripe -C 4 f", "lctl dl"])
def test_what_was_never_seen_is_no_answer(place: Place, command: str) -> None:
    found = place.run(command)
    assert (found.status, found.stdout) == (70, "")
    assert found.stderr.startswith("stand-in: ")


# --- all commands of one session of an ordinary user ----------------------------------------------

#: What a real file system ``rig`` answered an ordinary user, one command after the other. Object numbers,
#: the client and the mount point were replaced before they were written down.
BENCH = sessions("bench.txt")
#: Commands whose answers name what lies in a directory: its order is the file system's own.
UNORDERED = ("lfs getstripe -y .", "lfs find -O 2 .")
STATS = "lctl get_param osc.*.stats"


def true_counters() -> dict[str, dict[str, list[int]]]:
    """Counters behind the recorded answer, which names those of OST0001 after OST0000's.

    Only OST0000 has no ``ost_punch``. The last digit of each square sum is lost.
    """
    found: dict[str, dict[str, list[int]]] = {}
    for line in BENCH[STATS].stdout.splitlines():
        if match := re.match(r"osc\.rig-OST000(\d)-osc-CLIENT\.stats=", line):
            device = f"osc {match[1]}"
            shown: list[str] = []
            found[device] = {}
        elif " samples [" in line:
            name, numbers = line.split()[0], line.split()[1:2] + line.split("]")[1].split()
            shown.append(name)
            if device == "osc 1":
                names = list(found["osc 0"])
                names.insert(names.index("ost_disconnect") + 1, "ost_punch")
                name = names[len(shown) - 1]
            values = [int(number) for number in numbers]
            found[device][name] = [*values[:4], (values[4] if values[4:] else 0) * 10 + 4]
    return found


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    """All those commands on the stand-in, one after the other."""
    place = Place(tmp_path_factory.mktemp("bench"))
    place.environment |= {"LFS_FSNAME": "rig", "LCTL_USER": "1", "LFS_QUOTA": "48 0 23 0"}
    (place.top / "state").mkdir()
    answers = {}
    for command in BENCH:
        if command == STATS:
            file = place.top / "state" / "state.json"
            state = json.loads(file.read_text())
            file.write_text(json.dumps(state | {"stats": true_counters()}))
        ours = place.run(command)
        answers[command] = Answer(
            ours.stdout.replace(str(place.mount), "MNT"), ours.stderr, ours.status
        )
    return answers


def plain(text: str) -> str:
    """A text of the session without object numbers, client and times."""
    text = re.sub(r"0x[0-9a-f]+:0x[0-9a-f]+:0x0", "0xN:0xN:0xN", text)
    text = re.sub(r"-ffff[0-9a-f]+", "-CLIENT", text)
    return re.sub(r"(_time +)\d{10}\.\d{9} secs", r"\1TIME secs", text)


@pytest.mark.parametrize("command", list(BENCH))
def test_a_user_is_answered_alike(session: dict[str, Answer], command: str) -> None:
    """The same bytes; but sizes of targets are the stand-in's own, and a directory has its own order."""
    ours, theirs = session[command], BENCH[command]
    assert ours.status == theirs.status
    assert plain(ours.stderr) == plain(theirs.stderr)
    if command in UNORDERED:
        parts = r"(?m)^(?=stripe_count|lmm_stripe_count|lcm_layout_gen|\./)"
        assert sorted(re.split(parts, plain(ours.stdout))) == sorted(
            re.split(parts, plain(theirs.stdout))
        )
    elif command in ("lfs df .", "lfs df -i ."):

        def form(text: str) -> list[tuple[list[str], list[int]]]:
            # Numbers stand right, words left.
            return [
                (
                    re.sub(r"\b\d+\b(?!\])", "#", line).split(),
                    [match.end() for match in re.finditer(r"\d+%?(?= )", line)],
                )
                for line in text.splitlines()
            ]

        assert form(ours.stdout) == form(theirs.stdout)
    else:
        assert plain(ours.stdout) == plain(theirs.stdout)


# --- counters -------------------------------------------------------------------------------------


def counters(answer: Answer) -> dict[str, dict[str, tuple[int, int]]]:
    """Of each device its counters: samples and sum."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for line in answer.stdout.splitlines():
        if line.endswith(".stats="):
            mine = found[line[:-1]] = {}
        elif match := re.match(r"(\w+) +(\d+) samples \[\w+\] \d+ \d+ (\d+) ", line):
            mine[match[1]] = (int(match[2]), int(match[3]))
    return found


@pytest.mark.parametrize("command", [c for c in sessions("params.txt") if "|" not in c])
def test_settings_are_told_alike(place: Place, command: str) -> None:
    run = re.sub(r"^\(.*?\) ", "", command)
    user = "1" if "bench" in command else "0"
    alike(place.run(run, LCTL_USER=user), answer("params.txt", command))


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[Place]:
    """A mounted file system whose reads and writes are counted, on targets by the layouts of its files."""
    log = tmp_path / "log"
    try:
        with hanging.mounted(tmp_path, log=log) as mount:
            place = Place(tmp_path)
            place.mount = mount.point
            place.environment |= {
                "LFS_MOUNT": str(mount.point),
                "LFS_BELOW": str(tmp_path / "back"),
                "LFS_IO": str(log),
            }
            yield place
    except hanging.Unavailable as unavailable:
        pytest.skip(str(unavailable))


def moved_since(place: Place, before: dict[str, int]) -> dict[str, int]:
    """Bytes that each device moved since ``before``, which is brought up to date."""
    now = {
        f"{name.split('.')[1].split('-')[1]} {counter.removesuffix('_bytes')}": total
        for name, found in counters(
            place.run("lctl get_param 'osc.*.stats'", LFS_SERVERS="2")
        ).items()
        for counter, (_, total) in found.items()
        if counter.endswith("_bytes")
    }
    grown = {
        key: total - before.get(key, 0) for key, total in now.items() if total != before.get(key)
    }
    before.update(now)
    return grown


@pytest.mark.slow
def test_what_a_program_moves_is_counted_on_the_targets_of_its_files(counted: Place) -> None:
    """To the byte, and a read that the page cache serves is none, but for pages that the kernel took back meanwhile."""
    before: dict[str, int] = {}
    counted.run("lfs setstripe -c 2 -i 3 -S 1M striped; lfs setstripe -c 1 -i 1 one")
    assert moved_since(counted, before) == {}
    write = "dd if=/dev/zero of=striped bs=1M count=7 conv=notrunc,fsync"
    assert counted.run(write).status == 0
    assert moved_since(counted, before) == {"OST0003 write": 4 * MIB, "OST0000 write": 3 * MIB}
    assert counted.run("cat striped >/dev/null").status == 0
    from_cache = moved_since(counted, before)
    drop = "dd if=striped iflag=nocache count=0"
    assert counted.run(f"{drop}; cat striped >/dev/null").status == 0
    after_drop = moved_since(counted, before)
    direct = "dd if=/dev/zero of=one bs=64k count=3 oflag=direct conv=notrunc"
    assert counted.run(f"{direct}; rm one").status == 0
    assert moved_since(counted, before) == {"OST0001 write": 192 << 10}
    assert sum(from_cache.values()) < MIB // 4, from_cache
    assert after_drop == {"OST0003 read": 4 * MIB, "OST0000 read": 3 * MIB}


@pytest.mark.parametrize(
    "command", ["lfs pool_list lustre", "lfs pool_list lustre.flash", "lfs getdirstripe -y dne"]
)
def test_pools_and_metadata_targets_are_told_alike(place: Place, command: str) -> None:
    place.run("lfs mkdir -c 2 dne", LCTL_USER="0")
    alike(place.run(command, LFS_POOLS="flash:0,1"), answer("directories.txt", command))


def test_directories_of_the_first_levels_go_round_the_metadata_targets(place: Place) -> None:
    """As on a new file system: a session's directory lies on another target than that before it, its case beside it."""
    command = "for n in 1 2 3; do for d in me/top/s$n me/top/s$n/case; do mkdir -p $d; lfs getdirstripe -y $d; done; done"
    found = re.findall(r"offset: (\d)", place.run(command, LFS_ROUND="1").stdout)
    assert found == ["0", "0", "1", "1", "0", "0"]
