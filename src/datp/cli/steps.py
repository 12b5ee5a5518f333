"""`datp steps`: which step types this installation knows."""

import sys
from typing import TYPE_CHECKING

from datp.cli.options import AsJson, StepModules
from datp.cli.output import show_json, table
from datp.errors import DatpError, StartRefused

if TYPE_CHECKING:
    from datp.steps.registry import Registry


def steps(modules: StepModules = "", as_json: AsJson = False) -> None:
    """List the step types that are known here; with --json, their schemas, forms and examples too."""
    import msgspec

    from datp.settings import load

    registry = load_steps(load(given={"steps": modules or None}).steps)
    if as_json:
        known = [
            {
                "name": step_type.name,
                "description": step_type.description,
                "details": step_type.details,
                "defaultDefinition": step_type.default_definition,
                "definitionSchema": step_type.definition_schema,
                "form": msgspec.to_builtins(step_type.form),
                "examples": msgspec.to_builtins(step_type.examples),
                "canBeUndone": step_type.undo is not None,
            }
            for step_type in registry
        ]
        show_json(known)
        return
    table(
        ("step type", "undo", "default definition", "description"),
        (
            (step_type.name, step_type.undo is not None, step_type.default_definition or "", step_type.description)
            for step_type in registry
        ),
        empty="No step types are known here",
    )


def load_steps(modules: str) -> "Registry":
    """The step types of installed packages, and of these modules, which may stand in the current directory."""
    from datp.steps.registry import load_registry

    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return load_registry(modules)
    except DatpError:
        raise
    except Exception as error:  # a module's own code may raise anything
        problem = f"{type(error).__name__}: {error}"
        raise StartRefused(f"The step modules {modules} can't be imported: {problem}") from error
