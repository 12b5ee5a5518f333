"""Pipelines as files: YAML or JSON, one pipeline in each, with its test cases in it or beside it.

order.yaml            a pipeline; its key `tests` is no part of it
order.tests.yaml      more test cases of it: a list
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from datp.errors import BadDefinition, BadRequest

SUFFIXES: Final = (".yaml", ".yml", ".json")
TESTS: Final = ".tests"
"""What the name of a file with test cases ends with, before its suffix."""


@dataclass(frozen=True)
class PipelineFile:
    """What a file says, or why it can't be read."""

    where: str
    definition: Any = None
    tests: Any = None
    """None when nothing is said of any."""
    problem: str = ""


def find_files(given: Iterable[Path]) -> list[Path]:
    """The pipelines among the files, and in the folders. Raises BadRequest."""
    files: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = sorted(one for one in path.iterdir() if one.suffix in SUFFIXES and not _is_of_tests(one))
            if not inside:
                raise BadRequest(f"The folder {path} has no pipelines: no *.yaml, *.yml or *.json", field="FILE")
            files += inside
        elif path.exists():
            files.append(path)
        else:
            raise BadRequest(f"There is no file or folder {path}", field="FILE")
    return files


def read_pipeline(path: Path) -> PipelineFile:
    """What the file says, and the one with test cases beside it."""
    try:
        said = split(str(path), read_document(path))
        beside = [path.with_name(f"{path.stem}{TESTS}{suffix}") for suffix in SUFFIXES]
        more = [read_document(one) for one in beside if one.exists()]
    except BadDefinition as error:
        return PipelineFile(str(path), problem=str(error))
    tests = said.tests
    for one in more:
        if not isinstance(one, list) or not isinstance(tests, list | None):
            return PipelineFile(str(path), problem="test cases are a list")
        tests = [*(tests or []), *one]
    return PipelineFile(said.where, said.definition, tests)


def split(where: str, document: Any) -> PipelineFile:
    """The pipeline, and the test cases that stand with it."""
    if not isinstance(document, dict):
        return PipelineFile(where, document)
    definition = {key: value for key, value in document.items() if key != "tests"}
    return PipelineFile(where, definition, document.get("tests"))


def read_document(path: Path) -> Any:
    """What the file says; raises BadDefinition. Every JSON is YAML, but its own reader has the better sentences."""
    try:
        text = path.read_text(encoding="utf-8")
        return msgspec.json.decode(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError, yaml.YAMLError, RecursionError) as error:
        said = " ".join(str(error).split())
        raise BadDefinition(f"it can't be read: {said}") from None


def _is_of_tests(path: Path) -> bool:
    return Path(path.stem).suffix == TESTS
