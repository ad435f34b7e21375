"""Layouts in the binary form of Lustre's ``lustre_user.h``, for tests: the structs, field by field.

Written from include/uapi/linux/lustre/lustre_user.h of Lustre's sources (2.17), and from what lov_lsm_pack
(lustre/lov/lov_pack.c) and ll_sanitize_xattr (lustre/llite/xattr.c) put into the fields. No live kernel gave
these bytes. They are little-endian, as on the servers; :func:`encode` can give them the other way round too,
as a client that is not little-endian would.
"""

from __future__ import annotations

import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAGIC = {"v1": 0x0BD10BD0, "v3": 0x0BD30BD0, "composite": 0x0BD60BD0, "foreign": 0x0BD70BD0}
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

U8, U16, U32, U64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
FIELDS: dict[str, list[tuple[str, Any]]] = {
    "lov_user_ost_data_v1": [
        ("oi_id", U64),
        ("oi_seq", U64),
        ("l_ost_gen", U32),
        ("l_ost_idx", U32),
    ],
    "lov_user_md_v1": [
        ("lmm_magic", U32),
        ("lmm_pattern", U32),
        ("oi_id", U64),
        ("oi_seq", U64),
        ("lmm_stripe_size", U32),
        ("lmm_stripe_count", U16),
        ("lmm_stripe_offset", U16),
    ],
    "lov_comp_md_v1": [
        ("lcm_magic", U32),
        ("lcm_size", U32),
        ("lcm_layout_gen", U32),
        ("lcm_flags", U16),
        ("lcm_entry_count", U16),
        ("lcm_mirror_count", U16),
        ("lcm_ec_count", U8),
        ("lcm_padding3", U8),
        ("lcm_padding1_0", U16),
        ("lcm_padding1_1", U16),
        ("lcm_padding2", U64),
    ],
    "lov_comp_md_entry_v1": [
        ("lcme_id", U32),
        ("lcme_flags", U32),
        ("e_start", U64),
        ("e_end", U64),
        ("lcme_offset", U32),
        ("lcme_size", U32),
        ("lcme_layout_gen", U32),
        ("lcme_time_and_id", U64),
        ("lcme_dstripe_count", U8),
        ("lcme_cstripe_count", U8),
        ("lcme_compr_type", U8),
        ("lcme_compr_lvl", U8),
    ],
    "lov_foreign_md": [
        ("lfm_magic", U32),
        ("lfm_length", U32),
        ("lfm_type", U32),
        ("lfm_flags", U32),
    ],
}


def struct(name: str, **values: int) -> bytes:
    """A struct of the header with its fields; those that are not named are 0."""
    made: Any = type(
        name, (ctypes.LittleEndianStructure,), {"_pack_": 1, "_fields_": FIELDS[name]}
    )()
    for field, value in values.items():
        setattr(made, field, value)
    return bytes(made)


def plain(part: dict[str, Any]) -> bytes:
    """``lov_user_md_v1``, or ``v3`` if the part has a pool: count, size, pattern, pool, objects."""
    pool = part.get("pool") or ""
    head = struct(
        "lov_user_md_v1",
        lmm_magic=MAGIC["v3" if pool else "v1"],
        lmm_pattern=PATTERN[part.get("pattern", "raid0")],
        lmm_stripe_size=part["size"],
        lmm_stripe_count=part["count"] & 0xFFFF,
        lmm_stripe_offset=HIDDEN,
    )
    if pool:
        head += pool.encode().ljust(16, b"\0")
    objects = [
        struct("lov_user_ost_data_v1", oi_id=number + 7, oi_seq=0x280000400, l_ost_idx=ost)
        for number, ost in enumerate(part.get("objects") or ())
    ]
    return head + b"".join(objects)


def encode(layout: dict[str, Any]) -> bytes:
    """A layout: ``composite``, and its ``parts`` with begin, end (None: the end of the file), init, mirror."""
    parts = layout["parts"]
    if not layout["composite"]:
        return plain(parts[0])
    blobs = [plain(part) for part in parts]
    offset = 32 + 48 * len(parts)
    mirrors = {part.get("mirror", 0) for part in parts}
    head = struct(
        "lov_comp_md_v1",
        lcm_magic=MAGIC["composite"],
        lcm_size=offset + sum(map(len, blobs)),
        lcm_layout_gen=3,
        lcm_entry_count=len(parts),
        lcm_mirror_count=len(mirrors) - 1,
    )
    for number, (part, blob) in enumerate(zip(parts, blobs, strict=True), 1):
        head += struct(
            "lov_comp_md_entry_v1",
            lcme_id=part.get("mirror", 0) << 16 | number,
            lcme_flags=INIT if part["init"] else 0,
            e_start=part["begin"],
            e_end=EOF if part["end"] is None else part["end"],
            lcme_offset=offset,
            lcme_size=len(blob),
        )
        offset += len(blob)
    return head + b"".join(blobs)
