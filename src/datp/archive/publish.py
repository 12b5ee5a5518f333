"""Publishing: what SQL knows of pipelines and node groups reaches the store, and through it the nodes.

SQL keeps them, and its word counts. A store that had definitions before it had a database gives them to it once;
versions never change, so they can be put together in both directions.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from datp.archive.database import Database
from datp.hotstore.store import Listed, Store

log = logging.getLogger(__name__)

T = TypeVar("T")

PAGE: Final = 500

NameAndVersion = tuple[str, str]


async def settle(store: Store, database: Database) -> int:
    """The store and SQL know the same pipelines, versions and node groups; how many versions the store lacked.

    Raises StoreError, DatabaseError.
    """
    in_store = await _versions_in_store(store)
    await _take_over(store, database, in_store)
    return await _publish(store, database, in_store)


async def _take_over(store: Store, database: Database, in_store: set[NameAndVersion]) -> None:
    """SQL has what only the store knew. What is active, or shared, stays as SQL has it, if it has it."""
    listed, known = await _listed(store), await database.list_definitions()
    missing = sorted(in_store - await _versions_in_sql(database))
    for page in _pages(missing):
        async with store.turn() as turn:
            reply = turn.load_pipelines(page)
        await database.save_pipelines(
            [
                (name, version, result.detail[1].decode(), 0)
                for (name, version), result in zip(page, reply.value, strict=True)
                if result.code == "OK"
            ]
        )
    active = [
        (name, version.decode(), "", 1)
        for name, version in listed.pipelines.items()
        if version and not known.pipelines.get(name)
    ]
    groups = [(name, values.decode(), 1) for name, values in listed.groups.items() if name not in known.groups]
    if active:
        await database.save_pipelines(active)
    if groups:
        await database.save_node_groups(groups)
    if missing or active or groups:
        log.info("the database keeps %d versions of pipelines and %d node groups now", len(missing), len(groups))


async def _publish(store: Store, database: Database, in_store: set[NameAndVersion]) -> int:
    """The store has what SQL knows; what it has otherwise is as SQL has it. How many versions it lacked."""
    listed = await _listed(store)
    known = await database.list_definitions(above=(listed.published_pipelines, listed.published_groups))
    # Read after the active ones, so that each of them is among these.
    missing = sorted(await _versions_in_sql(database) - in_store)
    for page in _pages(missing):
        found = await database.load_pipelines(page)
        items = [
            (name, version, result.detail[1].decode(), 0)
            for (name, version), result in zip(page, found, strict=True)
            if result.code == "OK"
        ]
        async with store.turn() as turn:
            saved = turn.save_pipelines(items, change=known.pipeline_changes)
        assert all(result.code == "OK" for result in saved.value), saved.value
    active = [
        (name, version.decode(), "", 1)
        for name, version in known.pipelines.items()
        if version and listed.pipelines.get(name) != version
    ]
    groups = [(name, values.decode(), 0) for name, values in known.groups.items() if listed.groups.get(name) != values]
    async with store.turn() as turn:
        # Without items too: from now on the store knows that SQL keeps them.
        replies = [
            turn.save_pipelines(active, change=known.pipeline_changes),
            turn.save_node_groups(groups, change=known.group_changes),
        ]
    for reply in replies:
        assert all(result.code in ("OK", "SAME") for result in reply.value), reply.value
    if missing or active or groups:
        log.info(
            "published what the store lacked: %d versions, %d active ones, %d node groups",
            *(len(missing), len(active), len(groups)),
        )
    return len(missing)


async def _listed(store: Store) -> Listed:
    async with store.turn() as turn:
        reply = turn.list_definitions(whole=True)
    return reply.value


async def _versions_in_store(store: Store) -> set[NameAndVersion]:
    names = list((await _listed(store)).pipelines)
    found: set[NameAndVersion] = set()
    for page in _pages(names):
        async with store.turn() as turn:
            reply = turn.list_versions(page)
        for name, versions in zip(page, reply.value, strict=True):
            found.update((name, version) for version in versions)
    return found


async def _versions_in_sql(database: Database) -> set[NameAndVersion]:
    found: set[NameAndVersion] = set()
    after = ("", "")
    while True:
        page = await database.list_versions(after, PAGE)
        found.update(page)
        if len(page) < PAGE:
            return found
        after = page[-1]


def _pages(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[first : first + PAGE] for first in range(0, len(items), PAGE))
