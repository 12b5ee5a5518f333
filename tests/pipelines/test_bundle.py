"""What is exported vouches for itself: it comes back with its history, and any change of it is found."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_life import ANNA, TESTS, file, pushed
from worker.support import Engine

from datp.api.pipelines import Pipelines
from datp.errors import BadDefinition
from datp.model.limits import Limits
from datp.model.pipeline import Commit, encode_pipeline, parse_pipeline
from datp.pipelines.bundle import read_bundle, write_bundle


def made(versions: int = 3) -> bytes:
    """An exported pipeline with so many versions."""
    documents: dict[str, bytes] = {}
    parent = ""
    for number in range(versions):
        said = {"name": "order", "description": str(number), "steps": [{"id": "s1", "step": "util/echo"}]}
        definition = parse_pipeline(said, Limits())
        commit = Commit(definition.content, parent, f"comment {number}", "ada", 1_000 + number)
        parent = commit.version
        documents[parent] = encode_pipeline(msgspec.structs.replace(definition, commit=commit)).encode()
    return write_bundle("order", parent, documents, [])


async def test_an_exported_pipeline_comes_back_with_its_history(eng: Engine, pipelines: Pipelines) -> None:
    schema = {"type": "object", "properties": {"ä": {"type": "string"}}}
    await pushed(pipelines, eng, file("order", "util/echo", tests=TESTS), comment="one")
    await pushed(pipelines, eng, file("order", "util/echo", inputSchema=schema), comment="two")
    [newest, _] = before = await pipelines.versions("order")
    content = await pipelines.export("order")
    await pipelines.deactivate(ANNA, "order")
    await pipelines.delete(ANNA, "order", eng.registry)
    done = await pipelines.import_(ANNA, content, eng.registry, activate=True)
    assert (done.version, done.is_new, done.is_activated) == (newest.version, True, True)
    assert await pipelines.versions("order") == before
    assert [test.name for test in await pipelines.tests("order")] == ["echoes"]
    assert await pipelines.export("order") == content
    again = await pipelines.import_(ANNA, content, eng.registry)
    assert not again.is_new


def test_a_bundle_is_read_as_it_was_written() -> None:
    imported = read_bundle(made(), Limits())
    assert list(imported.documents)[-1] == imported.version
    assert (imported.pipeline, len(imported.documents)) == ("order", 3)
    assert imported.definition.description == "2"


def changed(content: bytes, change: Any) -> bytes:
    document = msgspec.json.decode(content)
    change(document)
    return msgspec.json.encode(document)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d["versions"][2]["steps"].append({"id": "s2", "step": "evil/step"}), "was changed"),
        (lambda d: d["versions"][0].update(description="rewritten"), "was changed"),
        (lambda d: d["versions"][1]["commit"].update(comment="rewritten"), "don't follow one another"),
        (lambda d: d["versions"][2]["commit"].update(comment="rewritten"), "but what is in it is"),
        (lambda d: d["versions"][2]["commit"].update(author="somebody else"), "but what is in it is"),
        (lambda d: d["versions"].pop(1), "don't follow one another"),
        (lambda d: d["versions"].insert(1, d["versions"][0]), "don't follow one another"),
        (lambda d: d["versions"].reverse(), "but what is in it is"),
        (lambda d: d["versions"].pop(), "but what is in it is"),
        (lambda d: d.update(version="0123456789abcdef"), "but what is in it is"),
        (lambda d: d.update(pipeline="other"), "is not of pipeline other"),
        (lambda d: d.update(format="datp-pipeline/9"), "its format is"),
        (lambda d: d.update(versions=[]), "has 1 to"),
        (lambda d: d.update(more=1), "no exported pipeline"),
        (lambda d: d["versions"][2]["commit"].update(more=1), "How a version came to be"),
    ],
)
def test_any_change_is_found(change: Any, says: str) -> None:
    with pytest.raises(BadDefinition, match=says):
        read_bundle(changed(made(), change), Limits())


def test_the_oldest_versions_may_be_missing() -> None:
    """They may have been deleted; what is there still vouches for the rest."""
    imported = read_bundle(changed(made(), lambda d: d["versions"].pop(0)), Limits())
    assert len(imported.documents) == 2


@given(st.data())
def test_a_changed_byte_is_found_or_means_nothing(data: st.DataObject) -> None:
    content = made(2)
    place = data.draw(st.integers(0, len(content) - 1))
    byte = data.draw(st.integers(0, 255))
    tampered = content[:place] + bytes([byte]) + content[place + 1 :]
    try:
        imported = read_bundle(tampered, Limits())
    except BadDefinition:
        return
    assert imported.documents == read_bundle(content, Limits()).documents
