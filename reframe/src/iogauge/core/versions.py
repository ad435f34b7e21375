"""The oldest versions of the tools that will do."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from iogauge.core.vocabulary import FIO, IOR, MDTEST

#: The oldest version of a tool that will do. fio 3.1 reports no bytes in a second.
OLDEST: Mapping[str, str] = MappingProxyType(
    {
        IOR: "4.0.0",
        MDTEST: "4.0.0",
        FIO: "3.7",
    }
)


def too_old(feature: str, version: str) -> str:
    """Return why a tool's version does not offer a feature, and what brings another; empty if it does."""
    oldest, numbers = OLDEST.get(feature, ""), re.match(r"\d+(?:[.-]\d+)*", version)
    if not oldest or numbers is None or _parts(numbers[0]) >= _parts(oldest):
        return ""
    return (
        f"version {version}, and {oldest} or newer is needed: the environment of this "
        "suite's stack brings it (spack env activate environments/<site> && spack install, or "
        "ci/build-stack)"
    )


def _parts(version: str) -> list[int]:
    return [int(part) for part in re.split("[.-]", version)]
