"""Definitions in SQL mean what they mean in the hot store: the same calls have the same results on both."""

from typing import Any

import pytest

from datp.archive.database import Database
from datp.hotstore.store import Result, Store

CALLS: list[tuple[str, list[tuple[Any, ...]]]] = [
    ("load_pipelines", [("order", ""), ("order", "v1")]),
    ("save_pipelines", [("order", "v1", '{"a":1}', 0)]),
    ("load_pipelines", [("order", ""), ("order", "v1"), ("order", "v2")]),
    ("save_pipelines", [("order", "v1", '{"b":2}', 1), ("order", "v2", "{}", 1), ("refund", "v9", "", 1)]),
    ("load_pipelines", [("order", ""), ("order", "v1"), ("refund", "")]),
    ("save_pipelines", [("order", "v1", "", 1), ("order", "v3", "", 0)]),
    ("load_pipelines", [("order", "")]),
    ("save_pipelines", [("refund", "v1", "{}", 0), ("order", "v2", "", 0)]),
    ("save_node_groups", [("main", '{"workers":3}', 0), ("side", "{}", 1)]),
    ("save_node_groups", [("main", "{}", 1), ("main", '{"workers":3}', 0), ("side", '{"text":"ü"}', 0)]),
]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
async def test_the_same_calls_have_the_same_results(database: Database, store: Store) -> None:
    for name, items in CALLS:
        async with store.turn() as turn:
            reply = getattr(turn, name)(items)
        ours: list[Result] = await getattr(database, name)(items)
        assert ours == reply.value, (name, items)
        for whole in (True, False):
            async with store.turn() as turn:
                listed = turn.list_definitions(whole=whole)
            assert await database.list_definitions(whole=whole) == listed.value
