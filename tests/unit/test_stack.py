"""The facts of an installed stack."""

import copy

import pytest

from iogauge.site import stack
from support.stack import FACTS, write_facts


def test_features_follow_from_what_was_built(tmp_path):
    built = stack.read(write_facts(tmp_path / "site" / ".spack-env"))
    assert built.features == ("fio", "ior", "ior-mpiio", "mdtest")
    assert built.to_record() == {
        "environment": "site",
        "fingerprint": "92718f76de22",
        "lock_sha256": "83c1",
        "hashes": {"ior": "i", "fio": "f", "mpi": "m"},
        "versions": dict.fromkeys(("ior", "mdtest"), "4.0.0") | {"fio": "3.42"},
    }


def test_the_command_survives_a_path_with_blanks(tmp_path):
    built = stack.read(write_facts(tmp_path / "a b" / ".spack-env"))
    assert built.prepare_command == f". '{tmp_path}/a b/.spack-env/activate.sh'"


@pytest.mark.parametrize("key", ["environment", "stack", "lock_sha256", "packages"])
def test_damaged_facts_are_refused(tmp_path, key):
    facts = copy.deepcopy(FACTS)
    del facts[key]
    with pytest.raises(stack.StackError, match=key):
        stack.read(write_facts(tmp_path / "site" / ".spack-env", facts))


def test_a_program_of_a_view_leads_to_its_stack(tmp_path):
    write_facts(tmp_path / ".spack-env")
    view = tmp_path / ".spack-env" / "view" / "bin"
    assert stack.of_program(str(view / "ior")) == stack.read(
        tmp_path / ".spack-env" / "stack.json"
    )
    assert stack.of_program("/usr/bin/fio") is None
