"""Where the project and its state lie."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

#: The package ``iogauge``; its parent is what Python's path must hold.
LIBRARY: Final = Path(__file__).resolve().parents[1]
#: Where the shell files are that job scripts source or run.
JOB_FILES: Final = LIBRARY / "job"


def sites_dir() -> Path:
    """Folder of the sites: the one that was loaded, else that of ``$RFM_CONFIG_PATH``, else the project's."""
    loaded = os.environ.get("IOGAUGE_SITES")
    configured = os.environ.get("RFM_CONFIG_PATH", "").split(os.pathsep)[0]
    return Path(loaded or configured or project_root() / "site-configs")


def project_root() -> Path:
    """The directory that holds checks/ and site-configs/: ``$IOGAUGE_ROOT``, or four levels above here."""
    root = os.environ.get("IOGAUGE_ROOT")
    return Path(root) if root else LIBRARY.parents[2]


def state_dir() -> Path:
    """Where records, stage and output go: ``$IOGAUGE_HOME``, or ``.iogauge`` in the project's root.

    A relative path ends the process: ReFrame changes the directory as it goes, and records would go astray.
    """
    home = os.environ.get("IOGAUGE_HOME")
    if home and not home.startswith("/"):
        raise SystemExit(f"iogauge: IOGAUGE_HOME is {home!r}: expected an absolute path")
    return Path(home) if home else project_root() / ".iogauge"


def history_dir() -> Path:
    """Directory of the sessions' record files."""
    return state_dir() / "history"


def stages_dir() -> Path:
    """Where ReFrame keeps the stage directories of sessions, a folder for each."""
    return state_dir() / "reframe" / "stage"
