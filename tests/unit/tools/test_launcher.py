"""Why a launcher did not run a tool: what Open MPI 4.1 and 5.0, MPICH 5.0 and Slurm 22.05 really said."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from iogauge.core.measurement import ToolOutputError
from iogauge.evidence import collect, complaints
from iogauge.evidence.complaints import telling_line
from iogauge.plan.stage import PhaseRun, complaints_file
from support import stage

SAID = {
    block.partition("\n")[0]: block.partition("\n")[2]
    for block in re.split(
        r"^\$ ",
        (Path(__file__).parents[2] / "data" / "launchers.txt").read_text(),
        flags=re.MULTILINE,
    )[1:]
}
SLOTS = "There are not enough slots available in the system to satisfy the 40 slots that were requested by the application: ior. Let mpirun"
NO_HOST = "ssh: Could not resolve hostname nohost1: Name or service not known"
SYSTEM = "No such file or directory"
NO_ROOM = "It looks like orte_init failed for some reason; your parallel process is likely to abort. MPI keeps files of its own"

#: What a reason begins with; the words of a tool that ran are a launcher's if it says nothing itself.
REASONS = {
    "mpirun -np 40 ior # Open MPI 4.1": SLOTS,
    "mpirun -np 40 ior # Open MPI 5.0.11": SLOTS,
    "mpirun -np 1 /no/such/ior # Open MPI 4.1": (
        "mpirun was unable to launch the specified application as it could not access or execute an executable: "
        "Executable: /no/such/ior Node: vm"
    ),
    "mpirun -np 1 /no/such/ior # Open MPI 5.0.11": (
        "prterun was unable to launch the specified application as it could not access an executable: "
        "Executable: /no/such/ior Node: vm"
    ),
    "mpirun --host nohost1 -np 1 ior # Open MPI 4.1": NO_HOST,
    "mpirun --host nohost1 -np 1 ior # Open MPI 5.0.11": NO_HOST,
    "mpirun --nosuch -np 1 ior # Open MPI 4.1": '/usr/bin/mpirun: Error: unknown option "--nosuch"',
    "mpirun --nosuch -np 1 ior # Open MPI 5.0.11": (
        "An unrecognized option was included on the mpirun command line: Option: --nosuch"
    ),
    "mpirun -np 2 ior, which ends with 3 # Open MPI 4.1": "Primary job terminated normally, but 1 process returned a non-zero",
    "mpirun -np 2 ior, which is killed # Open MPI 4.1": "Primary job terminated normally, but 1 process returned a non-zero",
    "mpirun -np 2 ior, which does not finalize # Open MPI 4.1": "mpirun has exited due to process rank 0 with PID 0",
    "mpirun -np 2 ior, which ends with 3 # Open MPI 5.0.11": "prterun detected",
    "mpirun -np 2 ior, which is killed # Open MPI 5.0.11": "prterun noticed that process rank 0",
    "mpirun -np 1 /no/such/ior # MPICH 5.0.2": "execvp error on file /no/such/ior",
    "mpirun --host nohost1 -np 1 ior # MPICH 5.0.2": NO_HOST,
    "mpirun --nosuch -np 1 ior # MPICH 5.0.2": "unrecognized argument nosuch",
    "mpirun -np 2 ior, which is killed # MPICH 5.0.2": "YOUR APPLICATION TERMINATED",
    "srun -n1 /no/such/ior # Slurm": "slurmstepd-n1: error: execve(): /no/such/ior: No such",
    "srun -p nopart ior # Slurm": "srun: error: invalid partition specified: nopart",
    "srun -n1 --nosuch ior # Slurm": "srun: unrecognized option '--nosuch'",
    "srun -n2 sh -c kill -9 $$ # Slurm": "srun: error: n1: tasks 0-1: Killed",
    "srun -n2 sh -c exit 3 # Slurm": "srun: error: n1: tasks 0-1: Exited with exit code 3",
    "srun -n 9 ior # Slurm": (
        "srun: error: Unable to create step for job 6: More processors requested than permitted. Let srun"
    ),
    "srun -n1 --mem=99G ior # Slurm": "srun: error: Memory specification can not be satisfied",
    "srun -n 1 --mpi=nosuch ior # Slurm": "srun: error: Couldn't find the specified plugin name",
    "srun -n 1 --cpu-bind=map_cpu:77 ior # Slurm": "srun: error: CPU binding outside of job step allocation",
    "srun -n 2 mdtest, Slurm without PMIx # Open MPI 4.1": (
        'The application appears to have been direct launched using "srun", but OMPI was not built with SLURM\'s PMI '
        "support and therefore cannot execute. Let srun offer what this MPI understands"
    ),
    "mpirun -np 2 ior, $TMPDIR is full # Open MPI 4.1": NO_ROOM,
    "mpirun -np 2 mdtest, another mpirun removed its files # Open MPI 4.1": NO_ROOM,
    "mpirun -np 2 ior, no ssh on PATH # Open MPI 4.1": (
        'The value of the MCA parameter "plm_rsh_agent" was set to a path that could not be found: plm_rsh_agent: '
        "ssh : rsh. mpirun looks for ssh"
    ),
    "mpirun -np 2 ior, SLURM_JOB_ID of an ended job # Open MPI 4.1": (
        "An ORTE daemon has unexpectedly failed after launch and before communicating back to mpirun. mpirun starts its"
    ),
}
#: A tool ran: no cause of the launcher's.
RAN = [name for name in SAID if "which" in name or "sh -c" in name]
RUN = PhaseRun(1, "write", 1, 0.0, 1.0, "t")


def reason(stage, text):
    (stage / complaints_file("write", 1)).write_text(text)
    return telling_line(stage, RUN)


def said(name):
    return re.sub(r"\[exit \d+\]\s*$", "", SAID[name])


@pytest.mark.parametrize("name", list(SAID))
def test_the_reason_is_what_the_launcher_says(tmp_path, name):
    found = reason(tmp_path, said(name))
    wanted = REASONS[name]
    at = found.find(wanted)
    # hydra's own function stands before an error of the system.
    assert at == 0 or (at > 0 and SYSTEM in found), found
    assert len(found) <= 500


@pytest.mark.parametrize(
    ("said", "status", "told"),
    [
        (
            "/d/iogauge/job/witness.sh: 63: mdtest: not found",
            127,
            "mdtest: not found. Put it on PATH",
        ),
        (
            '/d/iogauge/job/background.sh: line 26: 17966 Killed                  "$@"',
            137,
            "Killed",
        ),
    ],
)
def test_a_shell_of_the_suite_says_what_it_started(tmp_path, said, status, told):
    (tmp_path / complaints_file("write", 1)).write_text(said)
    assert telling_line(tmp_path, replace(RUN, status=status)).startswith(told)


def test_the_remedy_of_too_few_slots_is_named(tmp_path):
    for name in (
        "mpirun -np 40 ior # Open MPI 4.1",
        "mpirun -np 40 ior # Open MPI 5.0.11",
    ):
        found = reason(tmp_path, said(name))
        for words in (
            "--oversubscribe",
            "OMPI_MCA_rmaps_base_oversubscribe=1",
            "more hosts (hosts)",
        ):
            assert words in found


@pytest.mark.parametrize(
    "warning",
    [
        "WARNING: There was an error initializing an OpenFabrics device.",
        "A process has executed an operation involving a call to the fork() system call",
        "srun: Warning: can't run 1 processes on 3 nodes, setting nnodes to 1",
    ],
)
def test_a_warning_is_no_cause(warning):
    dashes = "-" * 74
    assert (
        complaints.launcher_cause([dashes, warning, "", "  Local host: n1", dashes])
        == ""
    )


#: What IOR 4.0.0 printed when an OST of a real Lustre 2.17 evicted the client under its reads, and the launcher beside it.
EVICTED = """\
Writing output to ior-read.1.json
WARNING: read(18, 0x7f0130cfd000, 1048576) failed Input/output error
ERROR: cannot read from file, (ior.c:1666)
"""
ABORTED = """\
[lustre:07145] MCW rank 0 bound to socket 0[core 0[hwt 0]]: [B/.]
[lustre:07145] [[2929,0],0] ORTE_ERROR_LOG: Out of resource in file ../../../orte/util/show_help.c at line 507
--------------------------------------------------------------------------
MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD
with errorcode -1.
"""


def test_an_eviction_under_a_read_is_thought_of(tmp_path):
    (tmp_path / "write.1.out").write_text(EVICTED)
    (tmp_path / "write.1.err").write_text(ABORTED)
    found = telling_line(tmp_path, RUN, on_lustre=True)
    assert found.startswith(
        "WARNING: read(18, 0x7f0130cfd000, 1048576) failed Input/output error; on Lustre this"
    )
    assert "an eviction" in found and "lctl get_param" in found
    assert "eviction" not in telling_line(tmp_path, RUN)


#: How each program began, two and three of them as worlds of one task: all were built with Open MPI, and mpiexec was MPICH's.
ALONE = (
    "mdtest-4.0.0 was launched with 1 total task(s) on 1 node(s)",
    'Args: md-workbench "-D=2" "-I=5" "-P=5" "-S=3901" "-O=1" "-R=1" "-w=1" "-W" "-o=t/w"',
    "---- WRF-IO write benchmark ----",
    "IO500 version io500-sc25_v1 (standard)",
    "IOR-4.0.0: MPI Coordinated Test of Parallel I/O",
)


@pytest.mark.parametrize("first", ALONE)
@pytest.mark.parametrize("status", [0, 1])
def test_worlds_of_one_task_are_named_whether_they_collide_or_not(
    tmp_path, first, status
):
    plan, left = stage.plan(), stage.build(tmp_path / "stage")
    for worlds in (1, 2, 3):
        said = (
            f"{first}\n" * worlds
            + "ERROR: 0: Error while creating the dset: t/w/0_1\n" * status
        )
        (left / "write.1.out").write_text(said)
        if status:
            found = telling_line(left, PhaseRun(1, "write", status, 1.0, 2.0, "t"))
        else:
            try:
                collect.collect(left, plan, 0)
                found = ""
            except ToolOutputError as error:
                found = str(error)
        named = f"{worlds} runs in one output, expected 1: this is what happens when the launcher"
        assert (named in found) == (worlds > 1)


#: Public reports: what was printed, and what is told of it.
PUBLIC = {
    "open-mpi/ompi#9582": (
        "A requested component was not found, or was unable to be opened.  This\nmeans that this component is either not "
        "installed.\n\nHost: cnode9\n\nFramework: psec\n\nComponent: munge\n\nIt looks like pmix_init failed for some "
        "reason; your parallel process is\nlikely to abort.\n[cnode9:27] PMIX ERROR: NOT-FOUND in file x.c at line 237",
        "opened. Host: cnode9 Framework: psec Component: munge. Give the nodes what this",
    ),
    "picongpu#3048": (
        "Your job has requested more processes than the ppr for\nthis topology can support:\n\n  App: /x\n  Number of "
        "procs:  32\n  PPR: 8:node\n\nPlease revise the conflict and try again.",
        "can support: App: /x Number of procs: 32 PPR: 8:node. Ask for fewer tasks",
    ),
    "ArjunaUsers#172": (
        "srun: error: spank: x11.so: Plugin file not found\nPMI2_Init failed to intialize.  Return code: 1",
        "PMI2_Init failed to intialize.  Return code: 1. Let srun offer",
    ),
    "open-mpi/ompi#7949": (
        "*** An error occurred in MPI_Init\n*** on a NULL communicator",
        "occurred in MPI_Init. Let srun offer",
    ),
    "executorlib#761": (
        "srun: error:  mpi/pmix_v5: init: (null) [0]: mpi_pmix.c:193: pmi/pmix: can not load PMIx library",
        "can not load PMIx library. Let srun offer",
    ),
    "DLA-Future#337": (
        "srun: Job 2 step creation still disabled, retrying (Requested nodes are busy)\nsrun: error: Unable to create step "
        "for job 2: Memory required by task is not available",
        "Memory required by task is not available",
    ),
    "dmtcp#702": (
        "slurmstepd: error: Unable to create TMPDIR [/scratch/1]: Permission denied\nsrun: error: c7: task 1: Exited with "
        "exit code 99",
        "Unable to create TMPDIR [/scratch/1]: Permission denied",
    ),
    "hpc/ior#218": (
        "[pike10:07644] *** Process received signal ***\n[pike10:07644] Signal: Segmentation fault (11)\n[pike10:07644] "
        "Failing at address: (nil)",
        "Signal: Segmentation fault (11)",
    ),
    "hpc/ior#412": (
        "Process 0: FAILED in mdtest_run, Unable to create test directory path: No such file or directory\napplication "
        "called MPI_Abort(MPI_COMM_WORLD, 1) - process 0",
        "Unable to create test directory path: No such file or directory",
    ),
    "hpc/ior#479": (
        "ERROR (aiori-DFS.c:675): 2: 17: dfs_open() of foo.00000002 Failed\n03/19/2024: Process 2: FAILED in TestIoSys",
        "dfs_open() of foo.00000002 Failed",
    ),
    "IO500/io500#63": (
        "WARNING: write(20, 0x25385000, 3901) failed No space left on device\nWARNING: task 0, partial write()",
        "failed No space left on device",
    ),
    "axboe/fio#1373": (
        "fio: engine io_uring not loadable\nfio: failed to load engine",
        "engine io_uring not loadable",
    ),
    "rapiddisk#40": (
        "fio: looks like your file system does not support direct=1/buffered=0\nfio: destination does not support O_DIRECT",
        "looks like your file system does not support direct=1",
    ),
    "breuner/elbencho#33": (
        "=== [ HOST: w1:1611 (Rank: 0) ] ===\n  ERROR: Unexpected short file read. Path: /m/r0-f0",
        "Unexpected short file read. Path: /m/r0-f0",
    ),
}


@pytest.mark.parametrize("report", PUBLIC)
def test_what_users_were_told_in_public_reports(tmp_path, report):
    printed, told = PUBLIC[report]
    assert told in reason(tmp_path, printed)
