"""YAML of a site: loaded safely, a key twice is a mistake, and every error names the file."""

import re

import pytest

from iogauge.core import yamlfile
from iogauge.core.yamlfile import Mistake, YamlError, located


def write(folder, text):
    file = folder / "f.yaml"
    file.write_text(text, encoding="utf-8", newline="")
    return file


def test_anchors_and_merges_work(tmp_path):
    file = write(tmp_path, "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n")
    assert yamlfile.load(file) == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}}


def test_numbers_that_look_like_what_they_are(tmp_path):
    file = write(
        tmp_path,
        "a: [0, 10, -0.1, 0.5, 0.125, 12.25, 1000.000, 1_000, 1e3, 0.0, '0100']\n",
    )
    assert yamlfile.load(file) == {
        "a": [0, 10, -0.1, 0.5, 0.125, 12.25, 1000.0, 1000, "1e3", 0.0, "0100"]
    }


@pytest.mark.parametrize(
    "text, line, problem",
    [
        ("a: 1\nb: 2\na: 3\n", 3, "key 'a' stands here a second time"),
        ("a: [1, 2\nb: 3\n", 2, "expected"),
        ("a: !!python/object:os.system x\n", 1, "could not determine a constructor"),
        ("a: 1\nb: [0100, 1]\n", 2, "0100 is read as 64. Write 64 if you mean it"),
        ("a: 1.000\n", 1, "1.000 is read as 1. Write 1"),
        ("a: 12.500\n", 1, "12.500 is read as 12.5"),
        ("a: 1:30\n", 1, "1:30 is read as 90"),
        ("a: *nowhere\n", 1, "undefined alias"),
        ("a: 1\n--- \nb: 2\n", 2, "but found another document"),
    ],
)
def test_a_mistake_names_file_and_line(tmp_path, text, line, problem):
    file = write(tmp_path, text)
    with pytest.raises(YamlError, match=re.escape(f"{file}:{line}: ") + f".*{problem}"):
        yamlfile.load(file)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path):
    (tmp_path / "latin").write_bytes(b"a: \xe9\n")
    for name, problem in (
        ("missing", "No such file"),
        ("", "Is a directory"),
        ("latin", "not YAML"),
    ):
        with pytest.raises(YamlError, match=problem):
            yamlfile.load(tmp_path / name)


def test_a_mistake_gets_the_line_of_its_key_or_of_the_nearest_above(tmp_path):
    file = write(tmp_path, "a:\n  - name: x\n    b: [1,\n      2]\n  - {c: 1}\n")
    keys = ("a", "a.x.b (lower bound)", "a.0.b", "a.1.c", "a.x.missing", "other", "")
    found = located(file, [Mistake(key, "1", "2") for key in keys])
    assert [mistake.line for mistake in found] == [1, 3, 3, 5, 2, None, None]
    assert str(found[1]) == f"{file}:3: a.x.b (lower bound): found 1; allowed: 2"


@pytest.mark.parametrize(
    "text",
    [
        "a0: &a0 [1, 1]\n"
        + "".join(f"a{n + 1}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(30)),
        "a: &a [*a]\n",
    ],
)
def test_too_many_values_are_refused(text):
    with pytest.raises(
        YamlError, match="more than 200000 values, with aliases written out"
    ):
        yamlfile.parse(text, "f")
