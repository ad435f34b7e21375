"""A new site as `site new` finds it, without what a test does not name."""

from iogauge_extras.newsite import found


def site(*targets, **more):
    plain = {
        "name": "mine",
        "stack": "local",
        "claimed": "",
        "host": "login1",
        "day": "2026-11-22",
        "slurm": None,
        "queue": found.this_machine(),
        "features": ("fio", "ior", "mdtest"),
        "mpirun": True,
        "modules": (),
        "modules_system": "",
        "targets": targets,
    }
    return found.Site(**plain | more)
