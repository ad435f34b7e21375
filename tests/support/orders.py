"""An order to the job's agent, with values that nothing speaks against."""

import os

from iogauge.plan.stage import JobOrder


def job_order(place, **change):
    """Return an order for a target; every value may be given otherwise."""
    values = {
        "target": place,
        "type": "ext4",
        "source": None,
        "uuid": None,
        "striping": "none",
        "targets": None,
        "restore": os.path.join(place, "..", "restore"),
        "session": "session",
        "host": "login",
        "process": (1, 2),
        "case": "case",
        "locks": (place,),
        "lock_wait_s": 5,
        "lock_lease_s": 60,
        "held_bytes": 1 << 20,
        "files": 1,
        "pieces": None,
        "pins": None,
        "layout": None,
        "shared_bytes": 0,
        "max_fill": 1.0,
        "max_of_free": 1.0,
        "time_limit_s": 60,
    }
    return JobOrder(**values | change)
