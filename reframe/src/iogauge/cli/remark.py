"""One line of the doctor's report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's report."""

    state: State
    subject: str
    text: str
    remedy: str = ""
