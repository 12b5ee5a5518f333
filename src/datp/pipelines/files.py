"""Pipelines as files: YAML or JSON, one pipeline in each."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from datp.errors import BadDefinition, BadRequest

SUFFIXES: Final = (".yaml", ".yml", ".json")


def find_files(given: Iterable[Path]) -> list[Path]:
    """The files, and those of the folders. Raises BadRequest."""
    files: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = sorted(one for one in path.iterdir() if one.suffix in SUFFIXES)
            if not inside:
                raise BadRequest(f"The folder {path} has no pipelines: no *.yaml, *.yml or *.json", field="FILE")
            files += inside
        elif path.exists():
            files.append(path)
        else:
            raise BadRequest(f"There is no file or folder {path}", field="FILE")
    return files


def read_document(path: Path) -> Any:
    """What the file says; raises BadDefinition. Every JSON is YAML, but its own reader has the better sentences."""
    try:
        text = path.read_text(encoding="utf-8")
        return msgspec.json.decode(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError, yaml.YAMLError, RecursionError) as error:
        said = " ".join(str(error).split())
        raise BadDefinition(f"it can't be read: {said}") from None
