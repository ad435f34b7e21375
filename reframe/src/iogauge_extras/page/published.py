"""What documents print of other systems, from the references of the published sites."""

from __future__ import annotations

from dataclasses import dataclass

from iogauge.site.marks import PUBLISHED
from iogauge.site.references import References, leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The best value of a metric that a document prints of a system."""

    system: str
    check: str
    metric: str
    value: float
    unit: str


def of_site(site: str) -> list[Published]:
    """Return the best value of each metric and check that a site marks as published."""
    best: dict[tuple[str, str], Published] = {}
    references = References.of_site(site)
    for check in references.data.get(PUBLISHED, ()) if not references.mistakes else ():
        for _, metric, (value, *_, unit) in leaves(check, references.data[check]):
            one = Published(system=site, check=check, metric=metric, value=value, unit=unit)
            if (check, metric) not in best or value > best[check, metric].value:
                best[check, metric] = one
    return list(best.values())
