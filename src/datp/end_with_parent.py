"""Becomes another program that gets SIGTERM when the process that started it dies; Linux only.

Run as a script, `python end_with_parent.py <pid of the parent> <program> <arguments>`, and not as a preexec_fn: that
would run Python in a forked copy of a process that may have threads, which can deadlock and is warned about from
Python 3.12 on. It costs some 15 ms. It imports nothing of ours, so that it can run without our path.

The kernel remembers the *thread* that started the process, and sends the signal when that ends.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def become(parent_pid: int, command: list[str]) -> None:
    """This process runs the command; it never returns."""
    if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
        sys.exit("prctl refuses PR_SET_PDEATHSIG")
    if os.getppid() != parent_pid:
        sys.exit("the parent died before its death could be asked for")
    os.execvp(command[0], command)


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2:])
