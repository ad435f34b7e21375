"""Names that sites, checks and records share: features, tags, tiers, fingerprints."""

from __future__ import annotations

from typing import Final, Literal

# Of a partition.
#: Declared in its extras; added to every partition with a target when the site is loaded.
TARGET: Final = "target"

#: O_DIRECT on the target bypasses every cache of the client.
O_DIRECT: Final = "o_direct"

#: Lustre lays files out on the target; added if the target is declared so.
LUSTRE: Final = "lustre"

#: Cases may switch Lustre's checksums; added if the partition's rights allow it.
CHECKSUMS: Final = "lustre-checksums"

# Of an environment.
IOR: Final = "ior"
IOR_MPIIO: Final = "ior-mpiio"
IOR_HDF5: Final = "ior-hdf5"
IOR_NCMPI: Final = "ior-ncmpi"
MDTEST: Final = "mdtest"
FIO: Final = "fio"
IO500: Final = "io500"
DARSHAN: Final = "darshan"
#: PnetCDF's benchmark of a weather model's output. An environment declares the path of its header in ``extras``.
WRF_IO: Final = "wrf_io"

PARTITION: Final = frozenset({TARGET, O_DIRECT, LUSTRE, CHECKSUMS})
ENVIRONMENT: Final = frozenset(
    {IOR, IOR_MPIIO, IOR_HDF5, IOR_NCMPI, MDTEST} | {FIO, IO500, DARSHAN, WRF_IO}
)

#: Tag of cases that have a reference which a document prints; the site's references say so.
PUBLISHED_FIGURE: Final = "published-figure"

#: Tags of checks: when they run, their tool, their purpose.
TAGS: Final = frozenset(
    {"quick", "daily", "weekly", "acceptance", "derived"}
    | {"fio", "io500", "ior", "mdtest", "mpiio", "wrf_io"}
    | {"failover", "needle", "scaling", "striping"}
    | {PUBLISHED_FIGURE}
)

#: How a finding begins if nothing but the tool confirms a figure's bytes.
NO_WITNESS: Final = "no second witness"

#: Kinds of refusals before a case runs: the site's files are wrong, the scale does not fit, the reference proves nothing.
OF_SITE: Final = "site"
OF_SCALE: Final = "scale"
OF_REFERENCE: Final = "reference"

#: In place of a guard's number, in findings that say which points a derived case lacks.
POINTS: Final = "points"

Value = str | int | float | bool
Fingerprint = dict[str, Value]

#: How much a run must prove. ``quick`` shows that a target works and gives rough figures. ``daily``
#: gives figures to compare from day to day, ``acceptance`` gives figures to sign.
Tier = Literal["quick", "daily", "acceptance"]

#: The reason of a valid figure that has no reference.
NO_REFERENCE: Final = "valid, and nothing to compare it with"
