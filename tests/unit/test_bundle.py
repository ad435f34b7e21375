"""A bundle for a vendor: what is in it, and what is not."""

import getpass
import hashlib
import io
import json
import os
import socket
import tarfile

from iogauge_extras.page import bundle
from support import records


def kept(state, record, text, moved_s=1.0):
    """What ReFrame keeps of a case: its report, and a folder with the raw output."""
    place = state / "output" / "IorPosix"
    place.mkdir(parents=True, exist_ok=True)
    (place / "write.1.out").write_text(text)
    (place / "data").write_bytes(b"\0\1")
    (state / "reports").mkdir(exist_ok=True)
    case = {
        "display_name": record.case,
        "stagedir": str(state / "gone"),
        "outputdir": str(place),
        "job_completion_time_unix": (place / "data").stat().st_mtime - moved_s,
    }
    report = state / "reports" / f"run-{record.session}.json"
    report.write_text(json.dumps({"runs": [{"testcases": [case]}]}))


def test_a_bundle_has_raw_outputs_commands_and_hashes_and_nothing_private(tmp_path):
    host, home = socket.gethostname(), os.path.expanduser("~")
    fingerprint = {"nodes": "oss-node[01-04]", "kernel": "6.1"}
    one = records.record("FAIL", commands=["ior -a POSIX"], fingerprint=fingerprint)
    said = f"{host} {home}/x oss-node03 10.1.2.3 10.1.2.3 10.9.9.9 {host}er"
    kept(tmp_path, one, said)
    files = bundle.contents(tmp_path, [one], f"<p>{host}</p>")
    (raw,) = (name for name in files if name.startswith("raw/"))
    assert raw.endswith("write.1.out")
    assert "/home/user/x" in files[raw] and files[raw].endswith(f"{host}er")
    assert files[raw].count("address1") == 2 and "address2" in files[raw]
    for text in ("10.1.2.3", home + "/", "oss-node03"):
        assert text not in "".join(files.values())
    assert (
        host not in files["page.html"] and getpass.getuser() not in files["page.html"]
    )
    assert "ior -a POSIX" in files["commands.sh"] and "FAIL" in files["commands.sh"]
    with tarfile.open(fileobj=io.BytesIO(bundle.packed(files, "b"))) as tar:
        for member in tar.getmembers():
            data = tar.extractfile(member).read()
            name = member.name.removeprefix("b/")
            line = f"{hashlib.sha256(data).hexdigest()}  {name}\n"
            assert name == "SHA256SUMS" or line in files["SHA256SUMS"]
    assert bundle.packed(files, "b") == bundle.packed(files, "b")


def test_outputs_of_a_newer_run_are_not_those_of_the_session(tmp_path):
    one = records.record("FAIL")
    kept(tmp_path, one, "newer", moved_s=86400.0)
    assert not any(
        name.startswith("raw/") for name in bundle.contents(tmp_path, [one], "")
    )
