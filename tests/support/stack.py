"""Facts of a stack as ci/check_stack.py writes them."""

import json

FACTS = {
    "environment": "site",
    "stack": "92718f76de22",
    "lock_sha256": "83c1",
    "packages": {
        "ior": {
            "hash": "i",
            "version": "4.0.0",
            "variants": {"lustre": True, "hdf5": False},
        },
        "fio": {"hash": "f", "version": "3.42", "variants": {}},
        "mpi": {"hash": "m", "name": "openmpi"},
    },
}


def write_facts(directory, facts=FACTS):
    """Write facts into an environment's .spack-env; returns the file."""
    directory.mkdir(parents=True)
    file = directory / "stack.json"
    file.write_text(json.dumps(facts))
    return file
