"""Versions: a commit follows what was there, its name vouches for both, and saying the same again is nothing."""

from typing import Any

import msgspec
import pytest

from datp.clock import HeldClock
from datp.definitions import Definitions
from datp.errors import BadDefinition, Conflict, NotFound, TooLarge
from datp.hotstore.store import Store
from datp.model.limits import Limits
from datp.model.pipeline import (
    Commit,
    PipelineDefinition,
    decode_pipeline,
    encode_pipeline,
    hash_of,
    parse_pipeline,
)


def said(description: str = "", **more: Any) -> PipelineDefinition:
    document = {"name": "order", "description": description, "steps": [{"id": "s1", "step": "util/echo"}], **more}
    return parse_pipeline(document, Limits())


@pytest.fixture
def definitions(store: Store) -> Definitions:
    return Definitions(store)


async def test_a_commit_follows_the_one_before(definitions: Definitions, clock: HeldClock) -> None:
    one = await definitions.commit(said("one"), comment="first", author="ada", activate=True)
    clock.advance(1_000)
    two = await definitions.commit(said("two"), comment="second", author="bob", activate=False)
    assert (one.is_new, two.is_new) == (True, True)
    newest, oldest = await definitions.versions("order")
    assert oldest.commit == Commit(said("one").content, "", "first", "ada", clock.now_ms() - 1_000)
    assert newest.commit == Commit(said("two").content, one.version, "second", "bob", clock.now_ms())
    assert (oldest.version, newest.version) == (one.version, two.version)
    assert await definitions.pipelines() == {"order": one.version}


async def test_saying_the_same_again_makes_no_version(definitions: Definitions) -> None:
    one = await definitions.commit(said("one"), activate=True)
    assert await definitions.commit(said("one"), comment="again", activate=True) == (one.version, False)
    two = await definitions.commit(said("two"), activate=False)
    assert await definitions.commit(said("two"), activate=False) == (two.version, False)
    assert await definitions.commit(said("one"), activate=True) == (one.version, False), "it is the active one"
    assert await definitions.commit(said("two"), activate=True) == (two.version, False), "which makes it active"
    assert await definitions.pipelines() == {"order": two.version}


async def test_going_back_is_a_version_of_its_own(definitions: Definitions) -> None:
    one = await definitions.commit(said("one"), activate=True)
    two = await definitions.commit(said("two"), activate=True)
    back = await definitions.commit(said("one"), activate=True)
    assert back.is_new and len({one.version, two.version, back.version}) == 3
    versions = await definitions.versions("order")
    assert [one.description for one in versions] == ["one", "two", "one"]


async def test_the_newest_is_the_newest_even_if_the_clock_stands_still(definitions: Definitions) -> None:
    for number in range(5):
        await definitions.commit(said(str(number)), activate=False)
    assert [one.description for one in await definitions.versions("order")] == ["4", "3", "2", "1", "0"]


def test_the_name_of_a_version_depends_on_all_of_its_commit() -> None:
    base = Commit("c" * 64, "p", "comment", "author", 5)
    changed = [{"content": "d" * 64}, {"parent": "q"}, {"comment": ""}, {"author": "x"}, {"at": 6}]
    names = {base.version, *(msgspec.structs.replace(base, **one).version for one in changed)}  # type: ignore[arg-type]
    assert len(names) == 6


def test_what_is_stored_says_its_own_name() -> None:
    definition = said("one", tags=["a"], inputSchema={"type": "object"})
    commit = Commit(definition.content, at=5)
    stored = encode_pipeline(msgspec.structs.replace(definition, commit=commit))
    again = decode_pipeline(stored)
    assert (again.version, again.content) == (commit.version, definition.content)
    document = msgspec.json.decode(stored)
    del document["commit"]
    assert hash_of(document) == definition.content, "also when it is read as any JSON"


def test_a_commit_is_not_written_by_hand() -> None:
    with pytest.raises(BadDefinition, match="commit is not written by hand"):
        said("one", commit={"content": "x"})


async def test_a_long_comment_is_refused(definitions: Definitions) -> None:
    with pytest.raises(TooLarge, match="at most 1000 characters"):
        await definitions.commit(said(), comment="x" * 1_001, activate=True)
    assert await definitions.pipelines() == {}


async def test_a_pipeline_that_is_deactivated_starts_nothing_and_can_be_deleted(definitions: Definitions) -> None:
    one = await definitions.commit(said("one"), activate=True)
    with pytest.raises(Conflict, match="is active"):
        await definitions.delete("order", [one.version])
    await definitions.deactivate("order")
    with pytest.raises(NotFound, match="no active version"):
        await definitions.pin("order", {})
    assert await definitions.delete("order", [one.version])
    assert await definitions.pipelines() == {}
    with pytest.raises(NotFound):
        await definitions.versions("order")
    with pytest.raises(NotFound):
        await definitions.deactivate("order")
    with pytest.raises(NotFound):
        await definitions.delete("order", [one.version])
