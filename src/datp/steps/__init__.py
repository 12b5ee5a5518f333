"""The step contract, and the step types that are shipped."""

from datp.model.error_library import ErrorLibrary, LibraryError, register_error_library
from datp.model.outcome import (
    Aborted,
    Branch,
    Failed,
    Outcome,
    Parallel,
    RetryLater,
    RunPipeline,
    Success,
    WaitForSwitch,
)
from datp.steps.context import Context
from datp.steps.contract import step

__all__ = [
    "Aborted",
    "Branch",
    "Context",
    "ErrorLibrary",
    "Failed",
    "LibraryError",
    "Outcome",
    "Parallel",
    "RetryLater",
    "RunPipeline",
    "Success",
    "WaitForSwitch",
    "register_error_library",
    "step",
]
