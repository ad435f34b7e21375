"""The facts of an installed stack."""

import copy
import json

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


@pytest.mark.parametrize(
    "specs, features",
    [
        ("[iogauge-stack@2026.2+io500~darshan]", "fio io500 ior"),
        ("[iogauge-stack@2026.2]", "darshan fio io500 ior"),
        (
            "[iogauge-stack ~io500 ~darshan hdf5=true ^openmpi+lustre]",
            "fio ior ior-hdf5",
        ),
        ("[ior@4.0.0 +ncmpi, fio]", "fio ior ior-ncmpi"),
        ("[io500@isc26_v2]", "io500"),
        ("[iogauge.fio@3.42]", "fio"),
        ("[matrix: [[ior], [+hdf5], ['%gcc']]]", "ior ior-hdf5"),
        ("[$tools], definitions: [{tools: [fio, ior]}]", "fio ior"),
        ("[{group: io, specs: [fio]}]", "fio"),
    ],
)
def test_a_plan_knows_specs_as_spack_writes_them(tmp_path, specs, features):
    (tmp_path / "site").mkdir()
    (tmp_path / "site/spack.yaml").write_text(f"spack: {{specs: {specs}}}\n")
    of_ior = {"ior-mpiio", "mdtest"}
    assert {*stack.planned(tmp_path, "site").features} - of_ior == {*features.split()}


def test_a_solved_environment_is_planned_by_its_lock_file(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site/spack.yaml").write_text("spack: {specs: [$elsewhere]}\n")
    with pytest.raises(stack.StackError, match="none of its specs brings a benchmark"):
        stack.planned(tmp_path, "site")
    solved = {"i": {"name": "ior", "parameters": {"ncmpi": True, "hdf5": False}}}
    lock = {"concrete_specs": {**solved, "f": {"name": "io500"}}}
    (tmp_path / "site/spack.lock").write_text(json.dumps(lock))
    features = {*stack.planned(tmp_path, "site").features}
    assert features >= {"ior", "ior-ncmpi", "io500"} and "fio" not in features
