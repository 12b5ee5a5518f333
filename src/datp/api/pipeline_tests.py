"""Test cases are run on an API node in a process of their own, so that they are no trouble of the node."""

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from datp.errors import BadRequest, TooBusy
from datp.model.pipeline import PipelineDefinition
from datp.pipelines.cases import CaseResult, TestCase

AT_ONCE: Final = 2
"""Each takes a core, and some 100 MB."""


class PipelineTester:
    """Runs test cases, a few at once."""

    def __init__(self, step_modules: str) -> None:
        self._step_modules = step_modules
        self._running = 0

    async def run(
        self, pipeline: str, family: Sequence[PipelineDefinition], cases: Sequence[TestCase], *, within_s: float
    ) -> list[CaseResult]:
        """What came of each. Raises TooBusy, BadRequest when they take too long or can't be run."""
        if self._running >= AT_ONCE:
            raise TooBusy("Test cases are being run already; try again in a while", retry_after_s=5)
        self._running += 1
        try:
            return await self._run(pipeline, family, cases, within_s)
        finally:
            self._running -= 1

    async def _run(
        self, pipeline: str, family: Sequence[PipelineDefinition], cases: Sequence[TestCase], within_s: float
    ) -> list[CaseResult]:
        job = {"pipeline": pipeline, "pipelines": family, "cases": cases, "step_modules": self._step_modules}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "datp.testing.run_cases"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # It needs neither the store nor the database, nor their passwords.
            env={name: value for name, value in os.environ.items() if not name.startswith("DATP_")},
        )
        try:
            out, error = await asyncio.wait_for(process.communicate(msgspec.json.encode(job)), within_s)
        except TimeoutError:
            raise BadRequest(f"The test cases took longer than {within_s:g} s, and were stopped") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            said = error.decode(errors="replace").strip().splitlines()
            raise BadRequest(f"The test cases can't be run: {said[-1] if said else 'the process died'}")
        return msgspec.json.decode(out, type=list[CaseResult])
