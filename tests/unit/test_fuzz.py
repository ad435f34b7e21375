"""Every reader of outside data, fed with damaged and made-up input: a value that holds, or its named error.

``IOGAUGE_FUZZ=N`` gives each reader N inputs of every kind; without it their number follows the profile of all
properties (tests/conftest.py).
"""

import json
import os
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support import fuzz
from support.depth import FULL

INPUTS = int(os.environ.get("IOGAUGE_FUZZ", "0"))
#: Each input; a reader that takes longer hangs. Machines that run other work too are slow.
DEADLINE = timedelta(seconds=60)
SLOW = {
    "history",
    "alarm",
    "darshan.parse",
    "site settings",
    "references",
    "yamledit.put",
    "yamlfile.load",
}
READERS = pytest.mark.parametrize("name", fuzz.BY_NAME)
_DAMAGE = st.tuples(st.integers(0, 9), st.integers(0, 2**20), st.integers(0, 2**16))


def profile(name, share=1.0):
    """As many inputs as the environment says, else as the profile says, and a third for a slow reader."""
    usual = int(settings.default.max_examples * share / (3 if name in SLOW else 1))
    return settings(
        max_examples=INPUTS or usual,
        deadline=DEADLINE,
        suppress_health_check=list(HealthCheck),
        derandomize=not INPUTS and not FULL,
    )


@READERS
def test_recorded_samples_are_read_or_refused(name):
    reader = fuzz.BY_NAME[name]
    assert sum(fuzz.check(reader, sample) for sample in reader.samples) >= 1


@READERS
def test_damaged_samples_are_read_or_refused(name):
    reader = fuzz.BY_NAME[name]

    @profile(name)
    @given(st.sampled_from(reader.samples), st.lists(_DAMAGE, min_size=1, max_size=4))
    def run(data, damages):
        for kind, at, what in damages:
            data = fuzz.damage(data, kind, at, what)
        fuzz.check(reader, data)

    run()


_JSON = st.recursive(
    st.sampled_from(fuzz.HOSTILE) | st.text(max_size=8) | st.integers() | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner)
    ),
    max_leaves=12,
).map(lambda value: json.dumps(value).encode())
_MARKS = st.lists(st.sampled_from(fuzz.SNIPPETS), max_size=8).map(b"".join)


@READERS
def test_made_up_text_is_read_or_refused(name):
    reader = fuzz.BY_NAME[name]

    @profile(name, 0.5)
    @given(
        st.binary(max_size=200) | st.text(max_size=200).map(str.encode) | _JSON | _MARKS
    )
    def run(data):
        fuzz.check(reader, data)

    run()


#: What was found once, by these tests or by a search guided by coverage.
FOUND = {
    "lustre.join_targets": [b"0: " + b"9" * 5000 + b"_UUID ACTIVE\n" + b"9" * 5000 + b": x ACTIVE\n"],
    "filesystem.parse_lfs_quota": ["/s ² ² ² - ² ² ² -".encode(), b"/s " + b"9" * 5000 + b" 0 0 - 0 0 0 -"],
    "filesystem.parse_mountinfo": [b"9" * 5000 + b" 1 8:1 / / rw - ext4 /dev/sda1 rw\n"],
    "load, fingerprint: lctl": [
        b"a" + b".a" * 5000 + b"\n",
        b"llite.x.stats=\nread_bytes 1 samples [bytes] 1 1 " + b"9" * 5000 + b"\n",
    ],
    "load, fingerprint: kernel": [
        b"3,1," + b"5,-;" + b"x" * 50000 + b"\n",
        b"3," + b"9" * 5000 + b",5,-;x\n",
    ],
    "needle.parse_rounds": [b"needle " + b"9" * 5000 + b" n1\n{}\n"],
    "history": [
        b'{"schema":1}\n',
        b'{"schema":1,"metrics":5,"case":[]}\n',
        fuzz.LINE.replace(b'"PASS"', b'"\\u001b[2J"'),
        fuzz.LINE.replace(b"540.75", b"1e999"),
        fuzz.LINE.replace(b"540.75", b"0").replace(b"540.0", b"-1"),
    ],
    "yamlfile.load": [
        b'"\\UFFFFFFFF"',
        b"a: &a [*a]\n",
        b"a: &a {b: *a}\n",
        b"a: &a {<<: *a}\n",
        # A billion values, of which a file has ninety.
        b"a: &a [x,x,x,x,x,x,x,x,x]\n"
        + b"".join(b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 9)) for c in range(98, 107)),
        b"a: &a {x: 1}\n"
        + b"".join(b"%c: &%c {<<: [%s]}\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 9)) for c in range(98, 107)),
        b"!!python/object/apply:os.system [touch /tmp/iogauge-pwned]",
        b"!!python/name:os.system",
    ],
    "site settings": [
        b"systems: [{name: site, hostnames: ['a{99999999999999}'], partitions: []}]\n",
        b"systems: &a [*a]\n",
        b"1: 2\nsystems: [{1: 2}]\n",
        fuzz.SETTINGS[-1].replace(b"case_bytes: 2 GiB", b"bogus: 1"),
    ],
    "references": [b"null: {a: 1}\n", b"1: {a: 1}\n2027-01-31: x\n"],
    "yamledit.put": [b"IorPosix: x\n", b"IorPosix: {'mysite:lustre': [1]}\n", b"- a\n"],
}  # fmt: skip


@pytest.mark.parametrize(
    "name, data", [(name, data) for name, found in FOUND.items() for data in found]
)
def test_what_was_found_once(name, data):
    fuzz.check(fuzz.BY_NAME[name], data)


@pytest.mark.parametrize(
    "data", [b for b in FOUND["yamlfile.load"] if b"&" in b or b"!!" in b]
)
def test_yaml_that_grows_or_does_something_is_refused(data):
    assert not fuzz.check(fuzz.BY_NAME["yamlfile.load"], data)
