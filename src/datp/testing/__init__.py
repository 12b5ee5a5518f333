"""For those who write steps and pipelines: DATP in one process, with a clock that the test holds."""

from datp.testing.cases import PipelineCase, cases
from datp.testing.driver import GoesOn
from datp.testing.lab import Lab
from datp.testing.mocks import Call, Mock
from datp.testing.result import Result, StepRan
from datp.testing.server import LabServer

__all__ = ["Call", "GoesOn", "Lab", "LabServer", "Mock", "PipelineCase", "Result", "StepRan", "cases"]
