"""Layouts of files in the binary form of Lustre's header, as lov.py of tests/support/lustre encodes it."""

import errno
import json
import os
import struct
from pathlib import Path

import pytest
import yaml

from iogauge.node.lustre import lov
from iogauge.node.lustre.file_layout import Layouts
from iogauge.node.lustre.lfs import LustreError
from support.lustre import attributes
from support.lustre import lov as encoder
from support.lustre.recorded import answer

MIB = 1 << 20


def recorded(name):
    """A layout that ``lfs getstripe -y`` of Lustre 2.17 printed, as the encoder takes it."""
    data = yaml.load(
        answer("getstripe.txt", f"lfs getstripe -y {name}").stdout, yaml.BaseLoader
    )

    def part(sub, entry):
        end = entry.get("lcme_extent.e_end", "EOF")
        return {
            "count": int(sub["lmm_stripe_count"]),
            "size": int(sub["lmm_stripe_size"]),
            "pattern": sub["lmm_pattern"],
            "pool": sub.get("lmm_pool", ""),
            "objects": [int(one["l_ost_idx"]) for one in sub.get("lmm_objects", [])],
            "begin": int(entry.get("lcme_extent.e_start", 0)),
            "end": None if end == "EOF" else int(end),
            "init": "init" in entry.get("lcme_flags", ""),
            "mirror": int(entry.get("lcme_mirror_id", 0)),
        }

    if "components" not in data:
        return {"composite": False, "parts": [part(data, {})]}
    parts = [part(entry["sub_layout"], entry) for entry in data["components"]]
    return {"composite": True, "parts": parts}


def same(found, made):
    """What was parsed is what was encoded, field by field."""
    assert found.composite == made["composite"]
    assert [
        (
            part.stripe_count,
            part.stripe_bytes,
            part.pattern,
            part.pool or "",
            list(part.objects),
            part.begin_bytes,
            part.end_bytes,
            part.mirror,
            part.instantiated or not made["composite"],
        )
        for part in found.parts
    ] == [
        (
            part["count"],
            part["size"],
            part["pattern"],
            part["pool"] or "",
            part["objects"],
            part["begin"],
            part["end"],
            part["mirror"],
            part["init"] or not made["composite"],
        )
        for part in made["parts"]
    ]


@pytest.mark.parametrize(
    "name, count, size, start, osts, parts, instantiated",
    [
        ("w4", 4, MIB, 2, (2, 3, 0, 1), 1, 1),
        ("over8", 8, MIB, 0, (0, 1, 2, 3), 1, 1),
        ("pfl", 1, MIB, 3, (3,), 3, 1),
        ("f40", 2, 4 * MIB, 3, (2, 3, 0), 3, 2),
        ("dom", 0, 65536, None, (), 2, 1),
        ("mir", 1, 4 * MIB, 2, (1, 2), 2, 2),
    ],
)
def test_recorded_layouts(name, count, size, start, osts, parts, instantiated):
    made = recorded(name)
    found = lov.parse_lov(encoder.encode(made), name)
    same(found, made)
    assert (found.path, found.last.stripe_count, found.last.stripe_bytes) == (
        name,
        count,
        size,
    )
    assert (found.start, found.osts) == (start, osts)
    assert (len(found.parts), len(found.instantiated)) == (parts, instantiated)


def patched(data, at, form, value):
    whole = bytearray(data)
    struct.pack_into(form, whole, at, value)
    return bytes(whole)


W4, F40 = encoder.encode(recorded("w4")), encoder.encode(recorded("f40"))
#: A component's entry begins here; its flags, extent, offset and size lie in it.
ENTRY = 32


@pytest.mark.parametrize(
    "data, why",
    [
        (patched(W4, 4, "<I", 0x2), "no pattern is 0x00000002"),
        (patched(W4, 24, "<I", 0), "4 stripe(s) of 0 bytes"),
        (patched(W4, 28, "<H", 3), "3 stripe(s) of 1048576 bytes in 96 bytes"),
        (patched(F40, 4, "<I", len(F40) - 1), "said to be"),
        (patched(F40, 14, "<H", 0), "0 component(s)"),
        (patched(F40, ENTRY + 24, "<I", 8), "no layout begins with"),
        (patched(F40, ENTRY + 24, "<I", 10**6), "no layout begins with nothing"),
    ],
)
def test_what_is_damaged_is_refused_with_its_reason(data, why):
    with pytest.raises(LustreError) as error:
        lov.parse_lov(data, "f")
    assert why in str(error.value)


def test_a_file_whose_components_have_no_objects_holds_no_data():
    made = recorded("f40")
    for part in made["parts"]:
        part |= {"init": False, "objects": []}
    with pytest.raises(LustreError, match="no component has objects"):
        lov.parse_lov(encoder.encode(made), "f")


def test_an_extension_holds_no_data():
    made = recorded("f40")
    data = patched(encoder.encode(made), ENTRY + 2 * 48 + 4, "<I", 0x40)
    found = lov.parse_lov(data, "f")
    assert [part.pattern for part in found.parts] == ["raid0", "raid0", "extension"]
    assert found.osts == (2, 3, 0)


def test_a_stale_mirror_holds_no_data():
    """A write reaches one mirror. The other one keeps its objects, and is stale."""
    data = patched(encoder.encode(recorded("mir")), ENTRY + 48 + 4, "<I", 0x11)
    found = lov.parse_lov(data, "f")
    assert (found.osts, len(found.instantiated), len(found.parts)) == ((1,), 1, 2)


def default(**part):
    plain = {
        "count": 0,
        "size": 0,
        "pattern": "none",
        "begin": 0,
        "end": None,
        "init": False,
    }
    return {"composite": False, "parts": [plain | part]}


@pytest.mark.parametrize(
    "made, text",
    [
        (default(count=1, size=4 * MIB), "1 x 4 MiB"),
        (default(count=4, pattern="raid0"), "4 x default size"),
        (default(count=-1, size=MIB, pool="flash"), "all targets x 1 MiB, pool flash"),
        (default(), "default count x default size"),
    ],
)
def test_the_default_of_a_directory(made, text):
    assert str(lov._parsed(encoder.encode(made), "d", of_file=False)) == text


def test_a_progressive_default_with_data_on_the_metadata_target():
    on_mdt = {
        "count": 0,
        "size": MIB,
        "pattern": "mdt",
        "begin": 0,
        "end": MIB,
        "init": False,
    }
    rest = {"count": -1, "size": 4 * MIB, "begin": MIB, "end": None, "init": False}
    made = {"composite": True, "parts": [on_mdt, rest]}
    found = lov._parsed(encoder.encode(made), "d", of_file=False)
    assert (
        str(found)
        == "to 1 MiB: on the metadata target; to the end: all targets x 4 MiB"
    )


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture
def lustre(tmp_path, monkeypatch):
    """A directory that counts as Lustre, whose layouts the stand-in gives."""
    place = tmp_path / "lustre"
    place.mkdir()
    monkeypatch.setenv("LFS_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LFS_MOUNT", str(place))
    monkeypatch.setattr(os, "getxattr", attributes.getxattr)
    return place


def test_all_files_below_a_directory_are_read(lustre):
    for name in ("b", "sub/a", "sub/deep/c"):
        (lustre / name).parent.mkdir(exist_ok=True)
        (lustre / name).write_bytes(b"x")
    (lustre / "link").symlink_to("b")
    (lustre / "loop").symlink_to(".")
    found = lov.look_at_lov(str(lustre), 2)
    assert [file.path for file in found.files] == ["b", "sub/a", "sub/deep/c"]
    assert (found.total, found.repetition, found.problem) == (3, 2, "")
    assert Layouts.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_more_files_are_a_random_sample(lustre, monkeypatch):
    monkeypatch.setattr(lov, "MOST_FILES", 5)
    for number in range(50):
        (lustre / f"f{number}").touch()
    seen = [lov.look_at_lov(str(lustre), 1) for _ in range(4)]
    assert {found.total for found in seen} == {50}
    assert {len({file.path for file in found.files}) for found in seen} == {5}
    assert len({found.files for found in seen}) > 1


def test_a_place_that_gives_no_layouts_is_named(lustre, tmp_path, monkeypatch):
    (tmp_path / "f").touch()
    with pytest.raises(LustreError, match=r"f was not answered .*it is not on Lustre"):
        lov.read_lov(str(tmp_path / "f"), "f")
    with pytest.raises(LustreError, match="it is not on Lustre"):
        lov.read_default_lov(str(tmp_path))

    def without(path, name):
        raise OSError(errno.ENODATA, os.strerror(errno.ENODATA), path)

    monkeypatch.setattr(os, "getxattr", without)
    with pytest.raises(LustreError, match="made without objects"):
        lov.read_lov(str(tmp_path / "f"), "f")
    assert lov.read_default_lov(str(lustre)) is None


@pytest.mark.parametrize("own", [None, b"old"])
@pytest.mark.parametrize("wanted", [None, b"new", b"old"])
def test_a_directory_adopts_the_default_of_another(monkeypatch, tmp_path, own, wanted):
    """As Lustre 2.17 does with extended attributes of directories, plain and progressive alike."""
    known = {str(tmp_path / "model"): wanted, str(tmp_path / "case"): own}
    for place in known:
        Path(place).mkdir()

    def get(path, name):
        if (value := known[path]) is None:
            raise OSError(errno.ENODATA, "No data available")
        return value

    monkeypatch.setattr(os, "getxattr", get)
    monkeypatch.setattr(
        os, "setxattr", lambda path, name, value: known.update({path: value})
    )
    monkeypatch.setattr(
        os, "removexattr", lambda path, name: known.update({path: None})
    )
    lov.adopt_default(str(tmp_path / "case"), str(tmp_path / "model"))
    assert known[str(tmp_path / "case")] == wanted
