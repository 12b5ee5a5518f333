"""Exported pipelines: a version with all that came before it, as one JSON file that vouches for itself.

    {"format": "datp-pipeline/1", "pipeline": "order", "version": "bcb6dd4b003084e2",
     "versions": [{"name": "order", "steps": […], "commit": {…}}, …], "tests": […]}

Each version names what it follows and is named by a hash of that, so whoever changes a version, or its history, changes
every name from there on. Versions that were deleted are left out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from datp.errors import BadDefinition
from datp.model.limits import Limits
from datp.model.pipeline import VERSION_LENGTH, Commit, PipelineDefinition, hash_of, parse_pipeline
from datp.model.values import printable
from datp.pipelines.cases import TestCase, parse_cases

FORMAT: Final = "datp-pipeline/1"
VERSIONS_MAX: Final = 10_000


class Bundle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An exported version, its history, and its test cases."""

    format: str
    pipeline: str
    version: str
    versions: list[dict[str, Any]]
    """As they are stored, the oldest first."""
    tests: list[dict[str, Any]] = []


class Imported(msgspec.Struct, frozen=True):
    """What a bundle holds, verified."""

    pipeline: str
    version: str
    documents: dict[str, str]
    """Version → what it says, as it is to be stored; the oldest first."""
    definition: PipelineDefinition
    """Of the version that was exported."""
    tests: list[TestCase]


def history_of(version: str, documents: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The version and those before it, as far as they are there, the oldest first."""
    line: list[str] = []
    while version in documents and version not in line:
        line.append(version)
        version = documents[version].get("commit", {}).get("parent", "")
    return line[::-1]


def write_bundle(name: str, version: str, documents: Mapping[str, bytes], tests: Sequence[TestCase]) -> bytes:
    """The file; `documents` are the pipeline's versions as they are stored."""
    decoded = {one: msgspec.json.decode(text) for one, text in documents.items()}
    line = [decoded[one] for one in history_of(version, decoded)]
    bundle = Bundle(FORMAT, name, version, line, [msgspec.to_builtins(test) for test in tests])
    return msgspec.json.format(msgspec.json.encode(bundle), indent=2) + b"\n"


def read_bundle(content: bytes, limits: Limits) -> Imported:
    """What the file holds, if it is what it says; raises BadDefinition."""
    try:
        bundle = msgspec.json.decode(content, type=Bundle)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadDefinition(f"This is no exported pipeline: {printable(str(error))}") from None
    if bundle.format != FORMAT:
        raise BadDefinition(
            f"This is no exported pipeline that is known here: its format is {printable(bundle.format)}"
        )
    if not 1 <= len(bundle.versions) <= VERSIONS_MAX:
        raise BadDefinition(f"An exported pipeline has 1 to {VERSIONS_MAX} versions, not {len(bundle.versions)}")
    documents: dict[str, str] = {}
    for document in bundle.versions:
        if document.get("name") != bundle.pipeline:
            raise BadDefinition(f"A version in it is not of pipeline {printable(bundle.pipeline)}")
        documents[_verified_version(document)] = msgspec.json.encode(document, order="sorted").decode()
    last = list(documents)[-1]
    if last != bundle.version:
        raise BadDefinition(
            f"It says that it is version {printable(bundle.version)}, but what is in it is {last}: it was changed"
        )
    decoded = dict(zip(documents, bundle.versions, strict=False))
    if len(documents) != len(bundle.versions) or history_of(last, decoded) != list(documents):
        raise BadDefinition("Its versions don't follow one another: something was taken out, or put in")
    definition = parse_pipeline({**bundle.versions[-1], "commit": None}, limits)
    return Imported(bundle.pipeline, last, documents, definition, parse_cases(bundle.tests))


def _verified_version(document: dict[str, Any]) -> str:
    """The version's name, made from what it says; raises BadDefinition."""
    said = {key: value for key, value in document.items() if key != "commit"}
    content = hash_of(said)
    if "commit" not in document:
        return content[:VERSION_LENGTH]
    try:
        commit = msgspec.convert(document["commit"], Commit)
    except msgspec.ValidationError as error:
        raise BadDefinition(f"How a version came to be can't be read: {printable(str(error))}") from None
    if commit.content != content:
        raise BadDefinition(
            f"The version {commit.version} was changed: what it says is not what was committed"
            f" ({content[:VERSION_LENGTH]}, not {printable(commit.content[:VERSION_LENGTH])})"
        )
    return commit.version
