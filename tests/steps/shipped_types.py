"""The shipped step types, for tests that say something of each of them."""

from typing import Final

from datp.steps import shipped
from datp.steps.contract import StepType
from datp.steps.registry import Registry

REGISTRY: Final = Registry()
REGISTRY.add_module(shipped)

STEP_TYPES: Final[tuple[StepType, ...]] = tuple(REGISTRY)
NAMES: Final = tuple(step_type.name for step_type in STEP_TYPES)
