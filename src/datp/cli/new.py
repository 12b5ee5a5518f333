"""`datp new`: a project with a step, a pipeline and tests that pass."""

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from datp.cli.options import AsJson
from datp.cli.output import say, show_json
from datp.errors import BadRequest, Conflict

FILES: Final = {
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    "src/{module}/__init__.py": "",
    "src/{module}/steps.py": "steps.py.txt",
    "pipelines/{name}.yaml": "pipeline.yaml.txt",
    "tests/test_steps.py": "test_steps.py.txt",
    "tests/test_pipelines.py": "test_pipelines.py.txt",
}
"""Each file of a project, and what it is made from."""

NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
NAME_LENGTH_MAX: Final = 50


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Of the project: small letters, digits, -.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Make a project: a step, a pipeline, and tests that pass."""
    if not NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
        raise BadRequest(
            f"{name!r} can't be the name of a project: write small letters, digits and -, such as my-shop", field="NAME"
        )
    module = name.replace("-", "_")
    if module in ("datp", "test", "tests"):
        raise BadRequest(f"{name} would hide a module of that name; choose another", field="NAME")
    root = Path(name)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise Conflict(f"{root} is there already: choose another name, or another place", reason="EXISTS")
    written = _write(root, name, module)
    if as_json:
        show_json({"directory": str(root), "files": written})
        return
    say(f"A project in {root}, with a step, a pipeline and their tests. Try:")
    say()
    say(f"  cd {root}")
    say("  pip install -e '.[test]'")
    say("  pytest")
    say("  datp dev")
    say()


def _write(root: Path, name: str, module: str) -> list[str]:
    """The project's files are there; which they are."""
    from importlib.resources import files
    from string import Template

    written = []
    try:
        for target, source in FILES.items():
            path = root / target.format(name=name, module=module)
            path.parent.mkdir(parents=True, exist_ok=True)
            text = (files("datp.cli") / "project" / source).read_text() if source else ""
            path.write_text(Template(text).substitute(name=name, module=module))
            written.append(str(path))
    except OSError as error:
        raise BadRequest(f"{error.filename} can't be written: {error.strerror}", field="NAME") from None
    return written
