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
    ("made", "name"),
    [
        ("-c 4 -S 1M -i 2", "w4"),
        ("-c 2 -S 4M -i 1", "w2i1"),
        ("-o 0,2", "o02"),
    ],
)
def test_a_plain_layout_is_shown_alike(place: Place, made: str, name: str) -> None:
    assert place.run(f"lfs setstripe {made} {name}") == Answer("", "", 0)
    for option in ("", "-y "):
        command = f"lfs getstripe {option}{name}"
        alike(place.run(command), answer("getstripe.txt", command))


@pytest.mark.parametrize("option", ["-c", "-S", "-i", "-p", "-q", "--component-count"])
@pytest.mark.parametrize("name", ["w4", "pfl"])
def test_one_value_of_a_layout_is_shown_alike(place: Place, option: str, name: str) -> None:
    place.run(
        "lfs setstripe -c 4 -S 1M -i 2 w4; lfs setstripe -E 1M -c 1 -i 3 -E 64M -c 2 -E -1 -c 4 pfl"
    )
    command = f"lfs getstripe {option} {name}"
    if command in sessions("getstripe.txt"):
        alike(place.run(command), answer("getstripe.txt", command))
    else:
        assert command == "lfs getstripe -p pfl"


def test_a_progressive_layout_is_shown_alike(place: Place) -> None:
    place.environment["LFS_FIRST"] = "0"
    place.run("lfs setstripe -E 1M -c 1 -i 3 -E 64M -c 2 -E -1 -c 4 pfl")
    alike(place.run("lfs getstripe -y pfl"), answer("getstripe.txt", "lfs getstripe -y pfl"))
    place.run("mkdir dpfl; lfs setstripe -E 1M -c 1 -E -1 -c -1 dpfl; touch dpfl/f")
    for command in ("lfs getstripe dpfl/f", "lfs getstripe -y dpfl/f"):
        alike(place.run(command), answer("getstripe.txt", command))


@pytest.mark.parametrize(("size", "starts"), [(8, [1]), (40, [2, 3]), (100, [1, 2, 0])])
def test_components_get_their_objects_as_the_file_grows(
    place: Place, size: int, starts: list[int]
) -> None:
    asked = zip(["-E 16M -c 1", "-E 64M -c 2", "-E -1 -c -1"], [*starts, -1, -1], strict=False)
    place.run(f"lfs setstripe {' '.join(f'{words} -i {start}' for words, start in asked)} f{size}")
    place.run(f"truncate -s {size}M f{size}")
    command = f"lfs getstripe -y f{size}"
    alike(place.run(command), answer("getstripe.txt", command))
    if size == 40:
        alike(place.run("lfs getstripe f40"), answer("getstripe.txt", "lfs getstripe f40"))


@pytest.mark.parametrize(
    ("made", "name"),
    [("lfs setstripe -c 4 -S 1M d4", "d4"), ("lfs setstripe -E 1M -c 1 -E -1 -c -1 dpfl", "dpfl")],
)
@pytest.mark.parametrize("option", ["-d", "-d -y"])
def test_a_default_is_shown_alike(place: Place, made: str, name: str, option: str) -> None:
    place.run(f"mkdir {name}; {made}")
    alike(
        place.run(f"lfs getstripe {option} {name}"),
        answer("getstripe.txt", f"lfs getstripe {option} {name}"),
    )
    place.run("mkdir plain")
    alike(
        place.run(f"lfs getstripe {option} plain"),
        answer("getstripe.txt", f"lfs getstripe {option} plain"),
    )


def test_several_files_are_shown_without_their_names(place: Place) -> None:
    place.run("lfs setstripe -c 1 -i 1 f.00000000; lfs setstripe -c 1 -i 2 f.00000001")
    command = "lfs getstripe -y f.00000000 f.00000001"
    alike(place.run(command), answer("getstripe.txt", command))


@pytest.mark.parametrize(
    "command",
    ["lfs getstripe nofile", "lfs getstripe /tmp", "lfs getstripe --bogus w4", "lfs getstripe "],
)
def test_getstripe_fails_alike(place: Place, command: str) -> None:
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


@pytest.mark.parametrize(("name", "made"), [("e1", "-c 99 -i 3"), ("e16", "-c 0 -i 1")])
def test_what_is_obtained_is_alike(place: Place, name: str, made: str) -> None:
    place.run(f"lfs setstripe {made} {name}")
    command = f"lfs getstripe -y {name}"
    alike(place.run(command), answer("setstripe.txt", command))


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


@pytest.mark.parametrize("over", [False, True])
def test_a_quota_is_told_alike(place: Place, over: bool) -> None:
    theirs = answer("quota.txt", "lfs quota -q -u bench /mnt/lustre").stdout
    numbers = "314528 0 105 0"
    if over:
        theirs = answer("quota-over.txt", "lfs quota -u bench /mnt/lustre").stdout.splitlines(True)[
            -1
        ]
        numbers = "40968 5120 3 2"
        theirs = re.sub(r"3\*       0       0", "3*       0       2", theirs)
    ours = place.run(f"lfs quota -q -u 1000 {place.mount}", LFS_QUOTA=numbers).stdout
    head = len(str(place.mount))
    assert ours[head:] == theirs[len("    /mnt/lustre") :]


def test_one_question_about_quotas_is_answered_alike(place: Place) -> None:
    def unnamed(text: str) -> str:
        text = re.sub(r"(usr|grp) \S+ \(([ug])id \d+\)", r"\1 NAME (\2id N)", text)
        return re.sub(r" *\d+ ", " # ", re.sub(r"(?m)^ *\S*/\S+", "MOUNT", text))

    theirs = answer("quota.txt", "lfs quota /mnt/lustre").stdout
    ours = place.run(f"lfs quota {place.mount}", LFS_QUOTA="314528 0 105 0").stdout
    assert unnamed(ours) == unnamed(theirs)
    soft = answer("quota-limits.txt", "lfs quota -q -u 2000 /mnt/lustre/bench # soft limit 10 MiB")
    ours = place.run(
        f"lfs quota -q -u 2000 {place.mount}", LFS_QUOTA="174032 0 1034 0 10240 1w"
    ).stdout
    assert ours.split()[1:5] == soft.stdout.split()[1:5]
    project = place.run(f"lfs quota -p 1000 {place.mount}", LFS_PROJECT_QUOTA="32 20480 4 0").stdout
    assert "prj <unknown> (pid 1000):" in project
    assert project.split()[-8:] == ["32", "0", "20480", "-", "4", "0", "0", "-"]


def test_a_file_that_is_made_anew_loses_its_layout(place: Place) -> None:
    place.run("lfs setstripe -c 1 -S 1M . && lfs setstripe -c 2 -S 4M -i 3 named")
    assert place.run("lfs getstripe -c named").stdout == "2\n\n"
    place.run("echo longer > named")
    assert place.run("lfs getstripe -c named").stdout == "2\n\n"
    place.run("rm named; touch named")
    assert place.run("lfs getstripe -c named; lfs getstripe -S named").stdout == "1\n\n1048576\n\n"


def test_a_default_is_inherited_and_its_files_go_round_the_targets(place: Place) -> None:
    place.run("lfs setstripe -c 1 -S 1M . && mkdir -p a/b && touch a/b/{0..7}")
    starts = place.run("for i in {0..7}; do lfs getstripe -i a/b/$i; done").stdout.split()
    assert sorted(starts) == ["0", "0", "1", "1", "2", "2", "3", "3"]
    again = place.run("for i in {0..7}; do lfs getstripe -i a/b/$i; done").stdout.split()
    assert again == starts


def test_a_target_that_takes_no_files_gives_the_next_one_and_success(place: Place) -> None:
    made = place.run("lfs setstripe -c 1 -i 2 f", LFS_NO_CREATE="2")
    assert made == Answer("", "", 0)
    assert place.run("lfs getstripe -i f").stdout == "3\n\n"


def test_a_degraded_target_is_avoided_unless_asked_for(place: Place) -> None:
    place.run("lfs setstripe -c -1 all; lfs setstripe -c 1 -i 2 forced", LFS_DEGRADED="2")
    assert place.run("lfs getstripe -c all; lfs getstripe -i forced").stdout == "3\n\n2\n\n"


def test_a_layout_can_be_made_to_differ(place: Place) -> None:
    place.run("lfs setstripe -c 4 f", LFS_LIE_COUNT="2")
    assert place.run("lfs getstripe -c f").stdout == "2\n\n"


def test_find_prints_what_is_asked_for(place: Place) -> None:
    place.run("lfs setstripe -c 1 -i 3 f.00000006; truncate -s 65536 f.00000006")
    asked = r'lfs find . -type f --printf "%p %Lc %Lo %Li %Ls %s\n"'
    warned = "lfs find: warning: unrecognized format directive: '%Ls'\n"
    assert place.run(asked) == Answer("./f.00000006 1 [3] 3 %Ls 65536\n", warned, 0)
    assert place.run("lfs find . -type f -O 2").stdout == ""
    assert place.run("lfs find . -type f -O lustre-OST0003_UUID").stdout == "./f.00000006\n"


@pytest.mark.parametrize(
    "command",
    [
        "lfs df -h",
        "lfs getstripe .",
        "lfs getstripe -c .",
        "lfs setstripe -C 4 f",
        "lfs migrate f",
        "lctl dl",
        "lctl get_param osc.*.rpc_stats",
        "lfs quota -t -u .",
        "lfs setstripe -E 1M -c 1 -N f",
    ],
)
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


def test_no_command_of_the_session_is_left_out() -> None:
    assert len(BENCH) == 44


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


@pytest.mark.parametrize("user", ["0", "1"])
def test_counters_grow_by_what_is_said(place: Place, user: str) -> None:
    place.run("moved osc 1 write 4194304 8; moved osc 2 read 65536; moved mdc 0 write 3901 2")
    name = "osc.lustre-OST0001-osc-ffff888129458800.stats"
    asked = place.run(f"lctl get_param {name}", LCTL_USER=user)
    assert asked.status == (2 if user == "1" else 0)
    assert counters(asked)[name]["write_bytes"] == (8, 8 << 22)
    assert "read_bytes" not in counters(asked)[name]
    place.run("moved osc 1 write 100; moved llite write 100")
    again = counters(place.run(f"lctl get_param {name}", LCTL_USER=user))
    assert again[name]["write_bytes"] == (9, (8 << 22) + 100)
    for other, expected in (("mdc.lustre-MDT0000*", (2, 7802)), ("llite.*", (1, 100))):
        (found,) = counters(place.run(f"lctl get_param '{other}.stats'", LCTL_USER=user)).values()
        assert found["write_bytes"] == expected


def test_a_user_sees_values_under_wrong_names_in_a_pattern_of_several_devices(place: Place) -> None:
    place.run("moved osc 0 write 2000; moved osc 1 write 30000")
    command = "lctl get_param 'osc.*.stats'"
    right = counters(place.run(command, LFS_SERVERS="2"))
    wrong = counters(place.run(command, LCTL_USER="1"))
    first, second = (f"osc.lustre-OST000{i}-osc-ffff888129458800.stats" for i in range(2))
    assert right[first] == wrong[first]
    assert right[second]["write_bytes"] == (1, 30000)
    assert wrong[second]["write_bytes"] != (1, 30000)
    assert (1, 30000) in wrong[second].values()


def test_a_second_mount_has_devices_of_its_own(place: Place) -> None:
    place.run("moved llite write 100; LFS_MOUNT_NUMBER=1 moved llite read 7")
    found = counters(place.run("lctl get_param 'llite.*.stats'", LFS_MOUNTS="2"))
    first, second = found.values()
    assert (first["write_bytes"], "read_bytes" in first) == ((1, 100), False)
    assert (second["read_bytes"], "write_bytes" in second) == ((1, 7), False)


@pytest.mark.parametrize(
    "pattern", ["osc.lustre-OST*-osc-[!M]*.stats", "osc.lustre-OST000[0-3]-osc-ffff*.stats"]
)
def test_a_bracket_ends_lctl_of_a_user(place: Place, pattern: str) -> None:
    ended = place.run(f"lctl get_param '{pattern}'; exit $?", LCTL_USER="1")
    assert (ended.stdout, ended.status) == ("", 139)
    assert len(counters(place.run(f"lctl get_param '{pattern}'"))) == 4


def test_before_2_17_statistics_are_for_root(place: Place) -> None:
    for command in (
        "osc.*.stats",
        "osc.lustre-OST0000-osc-ffff888129458800.stats",
        "llite.*.stats",
    ):
        user = place.run(f"lctl get_param '{command}'", LCTL_USER="1", LFS_VERSION="2.15.5")
        assert user == Answer("", "", 2)
        assert counters(place.run(f"lctl get_param '{command}'", LFS_VERSION="2.15.5"))


@pytest.mark.parametrize("command", [c for c in sessions("params.txt") if "|" not in c])
def test_settings_are_told_alike(place: Place, command: str) -> None:
    run = re.sub(r"^\(.*?\) ", "", command)
    user = "1" if "bench" in command else "0"
    alike(place.run(run, LCTL_USER=user), answer("params.txt", command))


def test_root_sees_the_connections(place: Place) -> None:
    command = "lctl get_param 'osc.*-osc-[!M]*.import' 'mdc.*.state'"
    found = place.run(command, LFS_SERVER_VERSION="2.15.5.0").stdout
    assert found.count("target_version: 2.15.5.0") == 4
    assert place.run(command, LCTL_USER="1") == Answer("", "", 2)


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


@pytest.mark.slow
@pytest.mark.needs_fio
@pytest.mark.parametrize("engine", ["psync", "libaio", "mmap"])
def test_a_real_fio_is_counted_to_the_byte(counted: Place, engine: str) -> None:
    """Its layout is written, and what it reads then is read: with O_DIRECT, or through the page cache."""
    before: dict[str, int] = {}
    counted.run("lfs setstripe -c 4 -S 1M .")
    # Newer versions write a note before the JSON if an engine cannot use the queue depth.
    depth = 4 if engine == "libaio" else 1
    job = f"--name=x --size=8M --bs=64k --rw=randread --iodepth={depth} --invalidate=1 --output-format=json"
    direct = 0 if engine == "mmap" else 1
    done = counted.run(
        f"fio {job} --ioengine={engine} --direct={direct} --output={counted.top}/out"
    )
    assert done.status == 0, done
    (said,) = json.loads((counted.top / "out").read_text())["jobs"]
    moved = moved_since(counted, before)
    total = {
        word: sum(v for k, v in moved.items() if k.endswith(word)) for word in ("read", "write")
    }
    assert (
        total
        == {"write": 8 * MIB, "read": said["read"]["io_bytes"]}
        == {"write": 8 * MIB, "read": 8 * MIB}
    )
    assert len(moved) == 8


@pytest.mark.slow
@pytest.mark.needs_ior
def test_a_real_ior_is_counted_to_the_byte(counted: Place) -> None:
    before: dict[str, int] = {}
    counted.run("lfs setstripe -c 2 -i 1 -S 1M .")
    run = "ior -a POSIX -t 1m -b 6m -k -o data"
    assert counted.run(f"{run} -w -e").status == 0
    assert moved_since(counted, before) == {"OST0001 write": 3 * MIB, "OST0002 write": 3 * MIB}
    assert counted.run(f"{run} -r").status == 0
    # The page cache serves the file; the kernel may have taken a few pages for others.
    assert sum(moved_since(counted, before).values()) < MIB // 4
    assert counted.run(f"{run} -r --posix.odirect").status == 0
    assert moved_since(counted, before) == {"OST0001 read": 3 * MIB, "OST0002 read": 3 * MIB}


@pytest.mark.parametrize(
    "command", ["lfs pool_list lustre", "lfs pool_list lustre.flash", "lfs getdirstripe -y dne"]
)
def test_pools_and_metadata_targets_are_told_alike(place: Place, command: str) -> None:
    place.run("lfs mkdir -c 2 dne", LCTL_USER="0")
    alike(place.run(command, LFS_POOLS="flash:0,1"), answer("directories.txt", command))


def test_a_directory_lies_where_that_above_it_lies(place: Place) -> None:
    place.run("lfs mkdir -i 1 m1; mkdir m1/below", LCTL_USER="0")
    theirs = answer("directories.txt", "lfs getdirstripe -y m1")
    alike(place.run("lfs getdirstripe -y m1"), theirs)
    alike(place.run("lfs getdirstripe -y m1/below"), theirs)


def test_directories_of_the_first_levels_go_round_the_metadata_targets(place: Place) -> None:
    """As on a new file system: a session's directory lies on another target than that before it, its case beside it."""
    command = "for n in 1 2 3; do for d in me/top/s$n me/top/s$n/case; do mkdir -p $d; lfs getdirstripe -y $d; done; done"
    found = re.findall(r"offset: (\d)", place.run(command, LFS_ROUND="1").stdout)
    assert found == ["0", "0", "1", "1", "0", "0"]
