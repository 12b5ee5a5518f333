"""Definitions are kept in SQL, and published to the store: a change is in both, and a store that was lost has all."""

from typing import Any

import pytest
from servers import Server
from worker.support import Engine

from datp.archive.database import Database, Saved
from datp.archive.publish import settle
from datp.definitions import Definitions
from datp.errors import Conflict, NotFound, StoreUnreachable
from datp.hotstore.store import Store
from datp.model.pipeline import PipelineDefinition, encode_pipeline, parse_pipeline
from datp.settings import Settings

CALLS: list[tuple[str, list[tuple[Any, ...]]]] = [
    ("load_pipelines", [("order", ""), ("order", "v1")]),
    ("save_pipelines", [("order", "v1", '{"a":1}', 0)]),
    ("load_pipelines", [("order", ""), ("order", "v1"), ("order", "v2")]),
    ("save_pipelines", [("order", "v1", '{"b":2}', 1), ("order", "v2", "{}", 1), ("refund", "v9", "", 1)]),
    ("load_pipelines", [("order", ""), ("order", "v1"), ("refund", "")]),
    ("save_pipelines", [("order", "v1", "", 1), ("order", "v3", "", 0)]),
    ("load_pipelines", [("order", "")]),
    ("save_pipelines", [("refund", "v1", "{}", 0), ("order", "v2", "", 0)]),
    ("delete_versions", [("refund", "v9"), ("refund", "v1"), ("order", "v2"), ("unknown", "v1"), ("order", "v1")]),
    ("load_pipelines", [("refund", "v1"), ("order", "v1"), ("order", "v2")]),
    ("deactivate_pipelines", ["order", "unknown"]),
    ("load_pipelines", [("order", ""), ("order", "v1")]),
    ("delete_versions", [("order", "v1"), ("order", "v3")]),
    ("save_node_groups", [("main", '{"workers":3}', 0), ("side", "{}", 1)]),
    ("save_node_groups", [("main", "{}", 1), ("main", '{"workers":3}', 0), ("side", '{"text":"ü"}', 0)]),
]

three_databases = pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])


@three_databases
async def test_the_same_calls_have_the_same_results(database: Database, store: Store) -> None:
    changes: dict[str, list[int]] = {}
    for name, items in CALLS:
        async with store.turn() as turn:
            reply = getattr(turn, name)(items)
        async with store.turn() as turn:
            listed = turn.list_definitions(whole=True)
        ours = await getattr(database, name)(items)
        if isinstance(ours, Saved):
            changes.setdefault("groups" if "groups" in name else "pipelines", []).append(ours.change)
            ours = ours.results
        assert ours == reply.value, (name, items)
        assert (await database.list_definitions())[2:4] == listed.value[2:4]
    assert all(numbers == sorted(set(numbers)) for numbers in changes.values()), "a later change has a greater number"


def order(settings: Settings, description: str = "") -> PipelineDefinition:
    """A pipeline; with another description it is another version."""
    said = {"name": "order", "description": description, "steps": [{"id": "s1", "step": "util/echo"}]}
    return parse_pipeline(said, settings)


async def active_in_store(store: Store) -> dict[str, str]:
    """As a worker without SQL knows them."""
    return await Definitions(store).pipelines()


@three_databases
async def test_a_change_is_kept_in_sql_and_published(database: Database, store: Store) -> None:
    definitions = Definitions(store, database)
    one, two = order(store.settings), order(store.settings, "changed")
    assert await definitions.save(one, activate=True)
    assert await definitions.save(two, activate=False)
    assert not await definitions.save(two, activate=False), "it was there"
    await definitions.save_group("main", {"workers": 7})
    known = await database.list_definitions()
    assert (known.pipelines, known.groups) == ({"order": one.version.encode()}, {"main": b'{"workers": 7}'})
    worker = Definitions(store)
    assert await worker.pipelines() == {"order": one.version}
    assert (await worker.definition("order", two.version)) == two
    assert worker.group("main") == {"workers": 7}
    await definitions.activate("order", two.version)
    assert await active_in_store(store) == {"order": two.version}
    assert (await database.list_definitions()).pipelines == {"order": two.version.encode()}
    with pytest.raises(NotFound, match="no version nonsense of pipeline order"):
        await definitions.activate("order", "nonsense")


async def test_a_store_that_lost_everything_gets_every_version_and_group(
    database: Database, store: Store, valkey_server: Server
) -> None:
    definitions = Definitions(store, database)
    versions = [order(store.settings, f"number {number}") for number in range(1200)]
    await database.save_pipelines(
        [("order", one.version, f'{{"n":{number}}}', 0) for number, one in enumerate(versions)]
    )
    await definitions.activate("order", versions[7].version)
    await definitions.save_group("main", {})
    valkey_server.flush()
    await store.open(create=True, held=True)
    assert await active_in_store(store) == {}
    await settle(store, database)
    async with store.turn() as turn:
        listed, found = turn.list_definitions(whole=True), turn.list_versions(["order"])
    assert listed.value.pipelines == {"order": versions[7].version.encode()}
    assert listed.value.groups == {"main": b"{}"}
    assert sorted(found.value[0]) == sorted(one.version for one in versions)


async def test_what_could_not_be_published_is_published_later(database: Database, store: Store) -> None:
    definitions = Definitions(store, database)
    await definitions.settle()
    execute = store.connection.execute

    async def lost(calls: Any) -> None:
        for call in calls:
            call.reply = StoreUnreachable("the store went away, on purpose")

    store.connection.execute = lost  # type: ignore[method-assign]
    with pytest.raises(StoreUnreachable):
        await definitions.save(order(store.settings), activate=True)
    store.connection.execute = execute  # type: ignore[method-assign]
    assert await active_in_store(store) == {}
    await settle(store, database)
    assert await active_in_store(store) == {"order": order(store.settings).version}


async def test_a_store_gives_its_definitions_to_the_database_that_it_gets(database: Database, store: Store) -> None:
    alone = Definitions(store)
    one, two = order(store.settings), order(store.settings, "changed")
    await alone.save(one, activate=True)
    await alone.save(two, activate=True)
    await alone.save_group("main", {"workers": 3})
    await Definitions(store, database).save_group("side", {})
    known = await database.list_definitions()
    assert known.pipelines == {"order": two.version.encode()}
    assert known.groups == {"main": b'{"workers": 3}', "side": b"{}"}
    assert {version for _, version in await database.list_versions()} == {one.version, two.version}


async def test_who_has_no_database_can_not_change_what_it_keeps(database: Database, store: Store) -> None:
    await settle(store, database)
    alone = Definitions(store)
    with pytest.raises(Conflict, match="DATP_DATABASE_URL"):
        await alone.save(order(store.settings), activate=True)
    with pytest.raises(Conflict, match="DATP_DATABASE_URL"):
        await alone.save_group("main", {})


@three_databases
async def test_of_two_who_activate_at_once_the_one_that_sql_had_last_counts(database: Database, store: Store) -> None:
    """The first one's publishing is held until the second one's is done."""
    one, two = order(store.settings), order(store.settings, "changed")
    definitions = Definitions(store, database)
    for version in (one, two):
        await definitions.save(version, activate=False)
    item_of = {one.version: ("order", one.version, "", 1), two.version: ("order", two.version, "", 1)}
    first = await database.save_pipelines([item_of[one.version]])
    second = await database.save_pipelines([item_of[two.version]])
    groups = [await database.save_node_groups([("main", values, 0)]) for values in ('{"workers":1}', '{"workers":2}')]
    for change, version, values in (
        (second.change, two.version, '{"workers":2}'),
        (first.change, one.version, '{"workers":1}'),
    ):
        async with store.turn() as turn:
            turn.save_pipelines([item_of[version]], change=change)
            turn.save_node_groups(
                [("main", values, 0)], change=groups[0].change if change == first.change else groups[1].change
            )
    assert await active_in_store(store) == {"order": two.version}
    again = Definitions(store)
    await again.reload()
    assert again.group("main") == {"workers": 2}


async def test_a_database_that_was_put_back_to_an_older_copy_has_the_last_word(
    database: Database, store: Store
) -> None:
    one, two = order(store.settings), order(store.settings, "changed")
    await Definitions(store, database).save(one, activate=True)
    for _ in range(50):
        await Definitions(store, database).save(two, activate=True)
    async with database.writing() as connection:
        await connection.execute("UPDATE datp_change SET changes = 3")
        await connection.execute(f"UPDATE datp_pipeline SET active_version = '{one.version}'")
    await settle(store, database)
    assert await active_in_store(store) == {"order": one.version}
    await Definitions(store, database).activate("order", two.version)
    assert await active_in_store(store) == {"order": two.version}


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_a_node_that_archives_publishes_what_the_store_lacks(eng: Engine) -> None:
    assert eng.archive is not None
    definition = eng.parsed("order", "util/echo")
    await eng.definitions.settle()
    await eng.archive.database.save_pipelines([("order", definition.version, encode_pipeline(definition), 1)])
    await eng.node(roles="worker,archive")
    assert (await eng.run("order", {"a": 1})).status == "success"
