"""Names of the features that sites declare and checks ask for.

One place, so that a misspelt name is an error when a check is loaded, and not a check that silently
selects nothing.
"""

from __future__ import annotations

from typing import Final

# Of a partition.
#: Its extras declare a target; added to every such partition when the site is loaded.
TARGET: Final = "target"
#: O_DIRECT on the target bypasses every cache of the client.
O_DIRECT: Final = "o_direct"
#: Lustre lays files out on the target; added where the target is so.
LUSTRE: Final = "lustre"
#: Cases may switch Lustre's checksums; added where the partition's rights say so.
CHECKSUMS: Final = "lustre-checksums"

# Of an environment.
IOR: Final = "ior"
IOR_MPIIO: Final = "ior-mpiio"
IOR_HDF5: Final = "ior-hdf5"
IOR_NCMPI: Final = "ior-ncmpi"
IOR_LUSTRE: Final = "ior-lustre"
MDTEST: Final = "mdtest"
FIO: Final = "fio"
DARSHAN: Final = "darshan"

PARTITION: Final = frozenset({TARGET, O_DIRECT, LUSTRE, CHECKSUMS})
ENVIRONMENT: Final = frozenset(
    {IOR, IOR_MPIIO, IOR_HDF5, IOR_NCMPI, IOR_LUSTRE, MDTEST, FIO, DARSHAN}
)
