"""Processes of `datp node`: they are started, restarted when they die, and told to stop when this process is."""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

from datp import end_with_parent
from datp.cli.serving import Told
from datp.errors import DatpError

log = logging.getLogger(__name__)

HEALTHY_AFTER_S: Final = 30.0
"""One that lived so long before it died is started again at once."""

PAUSE_FIRST_S: Final = 0.1
PAUSE_MAX_S: Final = 10.0
"""Between the deaths of one that never lives long: it must not keep a core busy with starting."""


def supervise(commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> int:
    """A `datp node` runs with each of these arguments, until all have ended; returns the exit code for all."""
    return asyncio.run(_Supervisor(environment).run(commands))


class _Supervisor:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._told = Told(at_once=self._kill)

    async def run(self, commands: Sequence[Sequence[str]]) -> int:
        self._told.listen()
        passing_on = asyncio.create_task(self._pass_on())
        # The first alone: what makes it refuse to start would make the others say so too.
        runs = asyncio.Event()
        first = asyncio.create_task(self._keep(0, commands[0], runs))
        waits = [asyncio.ensure_future(runs.wait()), first]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        waits[0].cancel()
        keeping = [first]
        if runs.is_set():
            keeping += [
                asyncio.create_task(self._keep(place, command, asyncio.Event()))
                for place, command in enumerate(commands[1:], 1)
            ]
        codes = await asyncio.gather(*keeping)
        passing_on.cancel()
        return max(codes)

    async def _keep(self, place: int, arguments: Sequence[str], runs: asyncio.Event) -> int:
        """The process runs; a new one when it has died. Returns the exit code when it has ended for good."""
        deaths = 0
        while not self._told.to_stop.is_set():
            began = time.monotonic()
            code = await self._run_one(place, arguments, runs)
            if self._told.to_stop.is_set() or not _died(code):
                return max(code, 0)
            deaths = 0 if time.monotonic() - began > HEALTHY_AFTER_S else deaths + 1
            pause_s = min(PAUSE_FIRST_S * 2**deaths, PAUSE_MAX_S) if deaths else 0.0
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"
            log.warning("process %d %s; it is started again", place + 1, how)
            try:
                await asyncio.wait_for(self._told.to_stop.wait(), pause_s)
            except TimeoutError:
                continue
        return 0

    async def _run_one(self, place: int, arguments: Sequence[str], runs: asyncio.Event) -> int:
        """One life of a process: what it prints is printed; its first line says that it runs."""
        child = await asyncio.create_subprocess_exec(
            *_ending_with_parent([sys.executable, "-m", "datp", "node", *arguments]),
            stdout=asyncio.subprocess.PIPE,
            env=self._environment,
            # Ctrl-C goes to every process of the terminal's group; these are told by their parent, once.
            start_new_session=True,
        )
        self._children[place] = child
        if self._told.to_stop.is_set():
            _signal(child, signal.SIGTERM)
        assert child.stdout is not None
        async for line in child.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.flush()
            runs.set()
        code = await child.wait()
        del self._children[place]
        return code

    async def _pass_on(self) -> None:
        await self._told.to_stop.wait()
        for child in self._children.values():
            _signal(child, signal.SIGTERM)

    def _kill(self) -> None:
        for child in self._children.values():
            _signal(child, signal.SIGKILL)


def _died(code: int) -> bool:
    """Whether it came to an end that nobody wanted: a signal, or a defect. What it refused, it would refuse again."""
    return code < 0 or code == DatpError.exit_code


def _signal(child: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if child.returncode is None:
        child.send_signal(number)


def _ending_with_parent(command: list[str]) -> list[str]:
    """The command, run so that it gets SIGTERM when this process dies, where the system can do that."""
    if sys.platform != "linux":
        return command
    return [sys.executable, "-I", "-S", end_with_parent.__file__, str(os.getpid()), *command]
