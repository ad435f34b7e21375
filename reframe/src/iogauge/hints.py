"""MPI-IO hints: what is wanted, in the words that the MPI library at hand understands.

Every MPI has names of its own for the same three wishes, and none of them says that it did what it was
told: Open MPI echoes hints that had no effect. What was obtained is read back from the files (layout) and
counted (writers), never taken from the echo.
"""

from __future__ import annotations

from typing import Final

#: Whose words a site's MPI understands: Cray MPICH; ROMIO (MPICH and all that use it); OMPIO of
#: Open MPI 4.1; OMPIO of Open MPI 5.
DIALECTS: Final = ("cray", "romio", "ompio4", "ompio5")
