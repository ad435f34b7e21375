"""The pages: links lead somewhere, every picture is shown, and all keys and commands of a user are named."""

import re
import subprocess
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from iogauge.cli.app import COMMANDS
from iogauge.site.extras import PartitionExtras
from support import golden

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / name
    for name in subprocess.check_output(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, text=True
    ).split()
    if (ROOT / name).exists()
]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page):
    """Names of the headings as GitLab and GitHub make them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-")
        for head in heads
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        place, _, anchor = link.partition("#")
        if "://" in place:
            continue
        there = (page.parent / place).resolve() if place else page
        assert there.exists(), link
        assert not anchor or anchor in anchors(there), link


def test_every_page_that_a_text_names_is_there():
    words = ["git", "grep", "-hoE", r"\bdocs/[a-z0-9-]+\.(md|json)(#[a-z0-9-]+)?", "--"]
    named = subprocess.check_output(
        [
            *words,
            "reframe/src",
            "ci",
            "checks",
            "benchmarks",
            "site-configs",
            "environments",
        ],
        cwd=ROOT,
        text=True,
    )
    for name in sorted(set(named.split())):
        page, _, anchor = name.partition("#")
        assert (ROOT / page).exists(), name
        assert not anchor or anchor in anchors(ROOT / page), name


def test_every_picture_is_shown():
    shown = {
        Path(link).name
        for page in PAGES
        for link in LINK.findall(page.read_text("utf-8"))
    }
    assert {file.name for file in (ROOT / "docs" / "images").iterdir()} <= shown


def keys(model):
    """Every key of a model and of the models below it, by its own name."""
    for name, field in model.model_fields.items():
        yield name
        inner = [field.annotation]
        while inner:
            kind = inner.pop()
            inner += get_args(kind)
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from keys(kind)


def test_the_page_of_keys_has_every_key():
    text = (ROOT / "docs" / "keys.md").read_text(encoding="utf-8")
    missing = {
        key for key in keys(PartitionExtras) if not re.search(rf"\b{key}\b", text)
    }
    assert not missing


def test_the_readme_names_every_command():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert {name for name in COMMANDS if f"`iogauge {name}" not in text} == set()


def test_every_check_has_a_row():
    table = (
        (ROOT / "docs" / "checks.md").read_text().partition("\n\nThe checks from")[0]
    )
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    named = {name.strip() for row in rows for name in row.split(",")}
    classes = {name for names in golden.families().values() for name in names}
    assert named - {"check", "---"} == classes
