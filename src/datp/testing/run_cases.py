"""Runs test cases in a process of their own: `python -m datp.testing.run_cases`, with a job on standard input.

An API node has it done so: what the steps of a test do, or leave undone, is no trouble of the node.
"""

import logging
import sys

import msgspec

from datp.errors import DatpError
from datp.model.pipeline import PipelineDefinition
from datp.pipelines.cases import TestCase
from datp.testing.cases import PipelineCase, run_cases
from datp.testing.server import LabServer


class Job(msgspec.Struct, frozen=True):
    """What is to be run."""

    pipeline: str
    pipelines: list[PipelineDefinition]
    """It, and those that it may start."""
    cases: list[TestCase]
    step_modules: str = ""


def main() -> int:
    """Prints the results as one JSON document; or a sentence to stderr, and returns 1."""
    logging.disable(logging.CRITICAL)
    if "" not in sys.path:
        sys.path.insert(0, "")
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    wanted = [PipelineCase(job.pipeline, case, job.pipelines) for case in job.cases]
    try:
        with LabServer() as server:
            results = list(run_cases(server, wanted, step_modules=job.step_modules, only_mocked=True))
    except DatpError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
