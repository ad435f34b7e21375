"""The form of all pages: templates, style, what a page may do, and who wrote it."""

from __future__ import annotations

import getpass
import socket
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from iogauge.core.text import visible
from iogauge.session.current import suite
from iogauge_extras.page import svg

FOLDER: Final = Path(__file__).parent

#: What a page without a script may do.
NO_SCRIPT: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)


def page_style() -> Markup:
    """Return the style of a page and of its figures."""
    css = (FOLDER / "page.css").read_text(encoding="utf-8")
    return Markup(css + svg.FIGURE_STYLE)


def written_by() -> str:
    """Return who wrote the page when, with which commit of the suite."""
    try:
        who = getpass.getuser()
    except (OSError, KeyError):
        who = "somebody"
    now = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
    return f"{now} by {who} on {socket.gethostname()}, iogauge {suite()}"


def _shown(value: object) -> object:
    """Make text visible before it is escaped; our own markup stays as it is."""
    return visible(value) if type(value) is str else value


TEMPLATES: Final = Environment(
    loader=FileSystemLoader(FOLDER),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
