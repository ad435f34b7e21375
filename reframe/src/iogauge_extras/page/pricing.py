"""What the measured bandwidth of a target costs: information, never a verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from iogauge.core.units import BANDWIDTH_UNITS, convert
from iogauge.records.record import LAYER_CHECKS, PriceRecord, Record


@dataclass(frozen=True, slots=True)
class BandwidthPrice:
    """The price of a target's best measured bandwidth: information, never a verdict."""

    target: str
    currency: str
    per_gb_month: float
    metric: str
    case: str
    gb_s: float
    per_gb_s_month: float
    source: str
    record: Record


def costs(records: Iterable[Record]) -> list[BandwidthPrice]:
    """Return the prices by partition and bandwidth metric.

    ``records`` come in the order in which they were made. The newest valid value of each case
    counts, and for each metric the best case. Partitions without a price are left out, and so is what
    a layer below the target carries.
    """
    newest: dict[tuple[str, ...], dict[str, tuple[float, Record, PriceRecord]]] = {}
    for record in records:
        price = record.price
        for metric in record.metrics if price else ():
            if metric.unit not in BANDWIDTH_UNITS or not metric.verdict.is_valid:
                continue
            if price is None or metric.median <= 0 or record.check in LAYER_CHECKS:
                continue
            bytes_s = convert(metric.median, metric.unit, "B/s")
            cases = newest.setdefault((record.system, record.partition, metric.name), {})
            cases[record.case] = (bytes_s, record, price)
    prices = []
    for (*_, name), cases in newest.items():
        bytes_s, record, price = max(cases.values(), key=lambda measured: measured[0])
        prices.append(
            BandwidthPrice(
                target=record.target_path,
                currency=price.currency,
                per_gb_month=price.per_gb_month,
                metric=name,
                case=record.short_name,
                gb_s=bytes_s / 1e9,
                per_gb_s_month=price.per_gb_s_month(bytes_s),
                source=price.source,
                record=record,
            )
        )
    return prices
