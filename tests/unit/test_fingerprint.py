"""What a record was made with: collected without root, without secrets, and without ever failing a run."""

import re
import threading

import pytest

from iogauge.evidence import fingerprint as evidence_fingerprint
from iogauge.node import inventory
from iogauge.node.lustre import parameters
from support.lustre.kernel import kernel
from support.lustre.recorded import parse_parameters, sessions

LUSTRE = sessions("params.txt")
ALL = "".join(answer.stdout for answer in LUSTRE.values())


# --- Lustre ---------------------------------------------------------------------------------------


EXPECTED = {
    "lustre.client": "2.17.0",
    "lustre.server": "2.17.0.0",
    "lustre.osts": 4,
    "lustre.mdts": 2,
    "tunable.llite.fast_read": "1",
    "tunable.llite.hybrid_io": "1",
    "tunable.llite.hybrid_io_read_threshold_bytes": "8388608",
    "tunable.llite.hybrid_io_write_threshold_bytes": "2097152",
    "tunable.llite.max_cached_mb": "2968",
    "tunable.llite.max_read_ahead_mb": "256",
    "tunable.llite.max_read_ahead_per_file_mb": "64",
    "tunable.llite.unaligned_dio": "1",
    "tunable.mdc.max_mod_rpcs_in_flight": "7",
    "tunable.mdc.max_rpcs_in_flight": "8",
    "tunable.osc.checksum_type": "t10ip4K",
    "tunable.osc.max_dirty_mb": "743",
    "tunable.osc.max_rpcs_in_flight": "8",
}
PARAMETERS = parse_parameters(ALL)


def test_what_a_user_may_not_see_gives_no_key(tmp_path):
    answer = LUSTRE["(user bench) lctl get_param llite.*.max_cached_mb"]
    assert (answer.stdout, answer.status) == ("", 2)
    root_alone = {"lustre.server", "tunable.llite.max_cached_mb"}
    assert parameters.facts("lustre", kernel(tmp_path, PARAMETERS, as_root=False)) == {
        key: value for key, value in EXPECTED.items() if key not in root_alone
    }


def test_servers_are_counted_by_their_addresses(tmp_path):
    addresses = {
        f"osc.lustre-OST000{i}-osc-ffff88.ost_conn_uuid": f"10.0.0.{1 + i % 2}@tcp"
        for i in range(4)
    }
    addresses["osc.lustre-OST0000-osc-MDT0000.ost_conn_uuid"] = "10.0.0.99@tcp"
    addresses["osc.lustre-OST0004-osc-ffff88.ost_conn_uuid"] = "<none>"
    kernel(tmp_path, addresses)
    assert parameters.facts("lustre", tmp_path) == {"lustre.servers": 2}
    assert parameters.client_servers("lustre", tmp_path) == {
        f"lustre-OST000{i}_UUID": f"10.0.0.{1 + i % 2}@tcp" for i in range(4)
    }


# --- nothing secret -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, kept",
    [
        ("rw,username=jane,password=tiger", "password=***,rw,username=***"),
        (
            "rw,name=admin,secret=AQD==,mds_namespace=a",
            "mds_namespace=a,name=***,rw,secret=***",
        ),
        ("credentials=/root/.smb,vers=3.0", "credentials=***,vers=3.0"),
        ("rw,clientaddr=10.1.1.7,addr=10.1.1.1,vers=4.2", "rw,vers=4.2"),
        # What differs with each mount of NFS 3, and with each container.
        ("rw,vers=3,mountaddr=10.1.1.1,mountport=42922,nolock", "nolock,rw,vers=3"),
        ("rw,lowerdir=/a:/b,upperdir=/c,workdir=/d,index=off", "index=off,rw"),
    ],
)
def test_mount_options_hold_no_secrets(options, kept):
    assert inventory.safe_options(options) == kept


@pytest.mark.parametrize(
    "source, kept",
    [
        ("//jane:tiger@nas/share", "//nas/share"),
        ("https://jane:tiger@dav/x", "https://dav/x"),
        ("10.0.2.15@tcp:/lustre", "10.0.2.15@tcp:/lustre"),
        ("/dev/sdb1", "/dev/sdb1"),
    ],
)
def test_a_source_holds_no_password(source, kept):
    assert inventory.safe_source(source) == kept


def test_variables_that_are_no_hints_are_not_looked_at(tmp_path, monkeypatch):
    for name in (
        "AWS_SECRET_ACCESS_KEY",
        "MPICH_TOKEN",
        "OMPI_MCA_ess_base_jobid",
        "HOME",
    ):
        monkeypatch.setenv(name, "tiger")
    monkeypatch.setenv("OMPI_MCA_io", "ompio")
    monkeypatch.setenv("MPICH_MPIIO_HINTS", "*:striping_factor=4")
    found = inventory.collect(str(tmp_path), deadline=60)
    assert (
        found["hints.environment"]
        == "MPICH_MPIIO_HINTS=*:striping_factor=4; OMPI_MCA_io=ompio"
    )
    assert "tiger" not in str(found)


# --- command lines and names ----------------------------------------------------------------------


def test_a_command_line_is_without_session_repetition_and_secrets():
    text = "fio --output=a-20260101-ab.$IOG_REP.json --password=tiger --size=1m"
    seen = evidence_fingerprint.normalise(text, session="20260101-ab")
    assert seen == "fio --output=a-SESSION.REP.json '--password=***' --size=1m"
    assert evidence_fingerprint.normalise("ior 'unfinished  -k") == "ior 'unfinished -k"
    assert evidence_fingerprint.normalise("") == ""
    assert evidence_fingerprint.normalise("ior -o ${IOG_DIR}/f -k") == "ior -o DIR/f -k"


@pytest.mark.parametrize(
    "text, version",
    [
        ("mpirun (Open MPI) 4.1.4\n\nReport bugs to ...\n", "Open MPI 4.1.4"),
        (
            "HYDRA build details:\n    Version:                                 4.2.0\n",
            "MPICH 4.2.0",
        ),
        (
            "Intel(R) MPI Library for Linux* OS, Version 2021.9\n",
            "Intel(R) MPI Library for Linux* OS, Version 2021.9",
        ),
    ],
)
def test_the_version_of_mpi(text, version):
    assert inventory.mpi_version(text) == version


# --- what it is used for --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key, starred",
    [
        ("kernel", True),
        ("fs.uuid", True),
        ("lustre.server", False),
        ("tool.ior", True),
        ("nic.eth0.speed_mbps", True),
        ("tunable.llite.hybrid_io_read_threshold_bytes", True),
        ("nic.eth0.mtu", False),
        ("command", False),
    ],
)
def test_what_starts_a_new_series(key, starred):
    assert evidence_fingerprint.series_subset({key: "x"}) == (
        {key: "x"} if starred else {}
    )


def test_what_the_case_knows_of_itself():
    found = evidence_fingerprint.of_case(
        hosts=["n2", "n1"],
        tools=["fio 3.33", "ior 4.0.0"],
        commands=["/x/ior -o $IOG_DIR/f.$IOG_REP", "ior -r"],
        inputs={"a.fio": "[a]\nsize=1m\n"},
        repetitions=3,
        stack={"fingerprint": "ab12", "hashes": {"ior": "h1"}, "environment": "e"},
        data_types=["random", "random"],
    )
    assert found == {
        "nodes": "n[1-2]",
        "tool.fio": "3.33",
        "tool.ior": "4.0.0",
        "stack": "ab12",
        "stack.ior": "h1",
        "command": found["command"],
        "command.text": "ior -o DIR/f.REP; ior -r",
        "settings": found["settings"],
        "settings.text": "repetitions 3; a.fio: [a] size=1m",
        "data_type": "random",
    }
    assert re.fullmatch(r"[0-9a-f]{12}", str(found["command"]))
    assert (
        evidence_fingerprint.of_case(
            hosts=[], tools=[], commands=[], stack={"fingerprint": ""}
        )
        == {}
    )


@pytest.mark.parametrize(
    "change, same",
    [
        ({"commands": ["ior -b 2m"]}, False),
        ({"inputs": {"a.fio": "size=2m"}}, False),
        ({"repetitions": 1}, False),
        ({"hosts": ["n3"], "commands": ["ior -b 1m -H n3"]}, True),
        ({"commands": ["ior -b 1m  -H n1"]}, True),
    ],
)
def test_what_is_measured_with_makes_the_settings(change, same):
    before = {
        "hosts": ["n1"],
        "tools": [],
        "commands": ["ior -b 1m -H n1"],
        "inputs": {"a.fio": "size=1m"},
        "repetitions": 3,
    }
    old, new = (
        evidence_fingerprint.of_case(**given) for given in (before, before | change)
    )
    assert (old["settings"] == new["settings"]) is same


# --- the machine ----------------------------------------------------------------------------------


def machine(root, files):
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


NODE = {
    "etc/os-release": 'NAME=x\nPRETTY_NAME="Rocky Linux 9.4"\n',
    "sys/class/dmi/id/product_name": "Server 9000\n",
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: CPU  X @ 2 GHz\n",
    "proc/meminfo": "MemTotal:       263816952 kB\nMemFree: 1 kB\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n",
    "sys/devices/system/cpu/vulnerabilities/mds": "Not affected\n",
    "sys/devices/system/node/node0/x": "",
    "sys/devices/system/node/node1/x": "",
    "sys/class/net/ib0/operstate": "up\n",
    "sys/class/net/ib0/speed": "200000\n",
    "sys/class/net/ib0/mtu": "4092\n",
    "sys/class/net/ib0/device/vendor": "0x15b3\n",
    "sys/class/net/ib0/device/device": "0x101b\n",
    "sys/class/net/eth1/operstate": "down\n",
    "sys/class/net/eth1/device/vendor": "0x1\n",
    "sys/class/net/lo/operstate": "unknown\n",
    "sys/class/infiniband/mlx5_0/fw_ver": "20.31\n",
    "sys/class/infiniband/mlx5_0/ports/1/rate": "200 Gb/sec (4X HDR)\n",
    **{
        f"sys/devices/system/cpu/cpu{i}/{name}": text
        for i in range(4)
        for name, text in (
            ("topology/core_cpus_list", f"{i % 2},{i % 2 + 2}\n"),
            ("topology/physical_package_id", f"{i % 2}\n"),
            ("cpufreq/scaling_governor", "powersave\n" if i else "performance\n"),
        )
    },
}


def test_a_node(tmp_path):
    found = inventory.collect(str(tmp_path), root=machine(tmp_path, NODE), deadline=60)
    expected = {
        "os": "Rocky Linux 9.4",
        "node.model": "Server 9000",
        "cpu.model": "CPU X @ 2 GHz",
        "cpu.cores": 2,
        "cpu.smt": True,
        "cpu.sockets": 2,
        "cpu.numa_nodes": 2,
        "cpu.governor": "performance,powersave",
        "mem.bytes": 252 << 30,
        "mem.thp": "always",
        "nic.ib0.speed_mbps": 200000,
        "nic.ib0.mtu": 4092,
        "nic.ib0.model": "0x15b3:0x101b",
        "ib.mlx5_0:1.rate": "200 Gb/sec (4X HDR)",
        "ib.mlx5_0:1.firmware": "20.31",
    }
    assert {key: found.get(key) for key in expected} == expected
    assert not [key for key in found if "eth1" in key or "nic.lo" in key]


def test_a_probe_that_fails_or_hangs_costs_its_own_keys_only(tmp_path, monkeypatch):
    hung = threading.Event()

    def breaks(_):
        raise RuntimeError("broken")

    def hangs(_):
        hung.wait()
        return {"late": True}

    three = {
        "processor": (breaks, ()),
        "network": (hangs, ()),
        "memory": (inventory._memory, ()),
    }
    monkeypatch.setattr(inventory, "READERS", three)
    found = inventory.collect(str(tmp_path), deadline=1)
    hung.set()
    assert "mem.bytes" in found
    assert "late" not in found
    assert [key for key in found if key.startswith("unanswered.")] == [
        "unanswered.network"
    ]
