"""Names that sites, checks and records share: features, tags, tiers, fingerprints."""

from typing import Literal

# Of a partition.
#: Declared in its extras; added to every partition with a target when the site is loaded.
TARGET = "target"

#: O_DIRECT on the target bypasses every cache of the client.
O_DIRECT = "o_direct"

#: Lustre lays files out on the target; added if the target is declared so.
LUSTRE = "lustre"

#: Cases may switch Lustre's checksums; added if the partition's rights allow it.
CHECKSUMS = "lustre-checksums"

# Of an environment.
IOR = "ior"
IOR_MPIIO = "ior-mpiio"
IOR_HDF5 = "ior-hdf5"
IOR_NCMPI = "ior-ncmpi"
MDTEST = "mdtest"
FIO = "fio"
IO500 = "io500"
DARSHAN = "darshan"
#: PnetCDF's benchmark of a weather model's output. An environment declares the path of its header in ``extras``.
WRF_IO = "wrf_io"

PARTITION = frozenset({TARGET, O_DIRECT, LUSTRE, CHECKSUMS})
ENVIRONMENT = frozenset(
    {IOR, IOR_MPIIO, IOR_HDF5, IOR_NCMPI, MDTEST} | {FIO, IO500, DARSHAN, WRF_IO}
)

#: Tag of cases that have a reference which a document prints; the site's references say so.
PUBLISHED_FIGURE = "published-figure"

#: Tags of checks: when they run, their tool, their purpose.
TAGS = frozenset(
    {"quick", "daily", "weekly", "acceptance", "derived"}
    | {"fio", "io500", "ior", "mdtest", "mpiio", "wrf_io"}
    | {"failover", "needle", "scaling", "striping"}
    | {PUBLISHED_FIGURE}
)

#: How a finding begins if nothing but the tool confirms a figure's bytes.
NO_WITNESS = "no second witness"

#: Kinds of refusals before a case runs: the site's files are wrong, the scale does not fit, the reference proves nothing.
OF_SITE = "site"
OF_SCALE = "scale"
OF_REFERENCE = "reference"

#: In place of a guard's number, in findings that say which points a derived case lacks.
POINTS = "points"

Value = str | int | float | bool
Fingerprint = dict[str, Value]

#: How much a run must prove. ``quick`` shows that a target works and gives rough figures. ``daily``
#: gives figures to compare from day to day, ``acceptance`` gives figures to sign.
Tier = Literal["quick", "daily", "acceptance"]

#: The reason of a valid figure that has no reference.
NO_REFERENCE = "valid, and nothing to compare it with"
