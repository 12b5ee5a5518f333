"""Which step types there are: those of packages that say so by entry point, and of the modules in `steps`."""

import importlib
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from types import ModuleType
from typing import Final

from datp.errors import BadDefinition, StartRefused
from datp.model.pipeline import PARALLEL_STEP, PIPELINE_STEP
from datp.steps.contract import MARK, StepType

GROUP: Final = "datp.steps"


class Registry:
    """Step types by name."""

    def __init__(self, step_types: Iterable[StepType] = ()) -> None:
        self._by_name: dict[str, StepType] = {}
        for step_type in step_types:
            self.add(step_type)

    def add(self, step_type: StepType) -> None:
        """The step type is known; two of one name are refused."""
        known = self._by_name.get(step_type.name)
        if step_type.name in (PIPELINE_STEP, PARALLEL_STEP) or (known and known is not step_type):
            raise BadDefinition(f"there are two step types named {step_type.name}", field=step_type.name)
        self._by_name[step_type.name] = step_type

    def add_module(self, module: ModuleType) -> None:
        """Every step type that the module defines or imports is known."""
        for value in vars(module).values():
            step_type = getattr(value, MARK, None)
            if isinstance(step_type, StepType):
                self.add(step_type)

    def get(self, name: str) -> StepType | None:
        return self._by_name.get(name)

    def __iter__(self) -> Iterator[StepType]:
        return iter(sorted(self._by_name.values(), key=lambda step_type: step_type.name))

    def __len__(self) -> int:
        return len(self._by_name)


def load_registry(modules: str) -> Registry:
    """The step types of installed packages, and of these modules (names with commas between)."""
    registry = Registry()
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        registry.add_module(point.load())
    for name in filter(None, (part.strip() for part in modules.split(","))):
        try:
            registry.add_module(importlib.import_module(name))
        except ImportError as error:
            raise StartRefused(f"The module {name}, which `steps` names, can't be imported: {error}") from error
    return registry
