"""What an installed library holds beside its modules: all that its commands read in a clone.

The wheel is built from a clone: pip install 'iogauge @ git+URL@VERSION#subdirectory=reframe'.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

CLONE = Path(__file__).resolve().parent.parent

#: Checks, published sites and their Spack environments, the templates of a site's repository, and
#: the pages that `iogauge explain` quotes.
HELD = (
    "checks/**/*.py",
    "site-configs/settings.py",
    "site-configs/*/*.yaml",
    "environments/*/*.yaml",
    "ci/repository/**/*",
    "docs/checks.md",
    "docs/keys.md",
)


class BuildWithProject(build_py):
    """Puts these files into iogauge/project, where iogauge.core.paths looks for them."""

    def run(self) -> None:
        """Build the package, then copy the files; an editable library reads those of the clone."""
        super().run()
        if self.editable_mode:
            return
        into = Path(self.build_lib) / "iogauge" / "project"
        shutil.rmtree(into, ignore_errors=True)
        for pattern in HELD:
            files = [file for file in CLONE.glob(pattern) if file.is_file()]
            if not files:
                raise SystemExit(
                    f"setup.py: {CLONE} has no {pattern}: build from a whole clone"
                )
            for file in files:
                place = into / file.relative_to(CLONE)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, place)


setup(cmdclass={"build_py": BuildWithProject})
