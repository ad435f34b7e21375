"""Extras of the partition that the healthy stage directory (support/stage.py) was made on."""

import copy

from iogauge.site.extras import PartitionExtras

EXTRAS = {
    "target": {"path": "/s", "type": "ext4", "source": "/dev/sdb1"},
    "node": {"cores": 4, "memory": "16 GiB"},
    "scale": {"tasks_per_node": 2},
    "limits": {
        "case_bytes": "1 GiB",
        "case_files": 100,
        "phase_seconds": "2 s",
        "tier": "quick",
    },
}


def extras(**parts):
    """The extras with keys of some parts replaced or added."""
    data = copy.deepcopy(EXTRAS)
    for name, part in parts.items():
        data[name] = {**data.get(name, {}), **part}
    return PartitionExtras.of_partition(data)
