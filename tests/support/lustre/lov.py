"""Layouts in the binary form of Lustre's ``lustre_user.h``, for tests: the structs, field by field.

Written from include/uapi/linux/lustre/lustre_user.h of Lustre's sources (2.17), and from what lov_lsm_pack
(lustre/lov/lov_pack.c) and ll_sanitize_xattr (lustre/llite/xattr.c) put into the fields. No live kernel gave
these bytes. They are little-endian, as on the servers.
"""

import struct

MAGIC = {
    "v1": 0x0BD10BD0,
    "v3": 0x0BD30BD0,
    "composite": 0x0BD60BD0,
}
PATTERN = {
    "raid0": 0x1,
    "mdt": 0x100,
    "raid0,overstriped": 0x201,
    "released": 0x80000001,
    "none": 0,
}
INIT = 0x10
EOF = 2**64 - 1
#: LOV_OFFSET_DEFAULT: what the client puts where the first target was.
HIDDEN = 0xFFFF


def user_md(magic, pattern, size, count, pool):
    """``lov_user_md_v1``; with a pool ``v3``: magic, pattern, object, its sequence, size, count, offset, name of the pool."""
    head = struct.pack("<IIQQIHH", magic, pattern, 0, 0, size, count & 0xFFFF, HIDDEN)
    return head + (pool.encode().ljust(16, b"\0") if pool else b"")


def ost_data(ost, number, sequence):
    """``lov_user_ost_data_v1``: object, its sequence, generation, target."""
    return struct.pack("<QQII", number, sequence, 0, ost)


def plain(part):
    """A layout of one part: count, size, pattern, pool, objects."""
    pool = part.get("pool") or ""
    pattern = PATTERN[part.get("pattern", "raid0")]
    head = user_md(
        MAGIC["v3" if pool else "v1"], pattern, part["size"], part["count"], pool
    )
    objects = enumerate(part.get("objects") or (), 7)
    return head + b"".join(
        ost_data(ost, number, 0x280000400) for number, ost in objects
    )


def encode(layout):
    """A layout: ``composite``, and its ``parts`` with begin, end (None: the end of the file), init, mirror."""
    parts = layout["parts"]
    if not layout["composite"]:
        return plain(parts[0])
    blobs = [plain(part) for part in parts]
    offset = 32 + 48 * len(parts)
    size = offset + sum(map(len, blobs))
    mirrors = len({part.get("mirror", 0) for part in parts})
    # lov_comp_md_v1: magic, size, generation, flags, entries, mirrors.
    head = struct.pack(
        "<IIIHHH14x", MAGIC["composite"], size, 3, 0, len(parts), mirrors - 1
    )
    for number, (part, blob) in enumerate(zip(parts, blobs, strict=True), 1):
        # lov_comp_md_entry_v1: identity, flags, begin, end, where its layout begins, and its size.
        identity, flags = (
            part.get("mirror", 0) << 16 | number,
            INIT if part["init"] else 0,
        )
        end = EOF if part["end"] is None else part["end"]
        head += struct.pack(
            "<IIQQII16x", identity, flags, part["begin"], end, offset, len(blob)
        )
        offset += len(blob)
    return head + b"".join(blobs)
