"""Where a measurement runs: the server on a core of its own, everything else beside it."""

import os
from typing import Final

CORES: Final = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else [0]


def apart(server_pid: int | None) -> None:
    """The server has the last core, this process the others.

    A message over a unix socket wakes its reader, as a rule, on the core of its writer. Whether both share one core or
    have two is then decided anew in every run, and changes a rate by half; between two machines nobody shares one.
    """
    if len(CORES) > 1 and server_pid is not None:
        os.sched_setaffinity(server_pid, CORES[-1:])
        os.sched_setaffinity(0, CORES[:-1])
