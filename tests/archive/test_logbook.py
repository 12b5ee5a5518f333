"""What steps wrote is read in its order."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from archived import tx_id
from worker.support import Engine, soon, until

from datp.api.log import LogLine, read_log
from datp.archive.database import Database
from datp.archive.logbook import LogEntry, LogLevel
from datp.errors import DatabaseUnreachable
from datp.model.ids import TransactionId
from datp.steps import Context


def entry(number: int, tx: int = 0, text: str = "charged") -> LogEntry:
    return LogEntry(
        tx_id=tx_id(tx), step_id=f"step-{number}", at_ms=number, level=LogLevel(number % 6), source="pay", text=text
    )


async def test_entries_are_read_page_by_page_in_the_order_in_which_they_were_written(database: Database) -> None:
    await database.write_log([entry(number, number % 2) for number in range(120)])
    await database.write_log([entry(7)])
    await database.write_log([])
    found = await database.read_log(tx_id(0), count=50)
    found += await database.read_log(tx_id(0), found[-1].id)
    assert [msgspec.structs.replace(one, id=0) for one in found] == [
        *(entry(number) for number in range(0, 120, 2)),
        entry(7),
    ]
    assert await database.read_log(tx_id(5)) == []


async def test_any_text_can_be_written(database: Database) -> None:
    await database.write_log([entry(1, text="a\0b\ud800 🎈\n\x1b[1m" + "x" * 100_000)])
    (found,) = await database.read_log(tx_id(0))
    assert found.text == "a\N{REPLACEMENT CHARACTER}b? 🎈\n\x1b[1m" + "x" * 100_000


async def test_only_what_matters_enough_is_read(database: Database) -> None:
    await database.write_log([entry(number) for number in range(12)])
    found = await database.read_log(tx_id(0), level=LogLevel.ERROR)
    assert [one.at_ms for one in found] == [4, 5, 10, 11]


# ── from a step to whoever reads it ──────────────────────────────────────────────────────────────────────────────


async def lay_out(eng: Engine) -> None:
    async def talks(context: Context, input: dict[str, Any]) -> None:
        context.log.trace("nobody wants to know")
        context.log.info("charged %s", input["amount"])
        if input.get("fails"):
            raise RuntimeError("no money")

    def in_a_thread(context: Context) -> None:
        context.log.warning("from a thread")

    eng.step("test/talks", talks)
    eng.step("test/in-a-thread", in_a_thread)
    await eng.pipeline("talks", "test/talks", "test/in-a-thread")


async def lines_of(eng: Engine, tx: TransactionId, count: int) -> list[LogLine]:
    """The lines, once there are so many."""
    archive = eng.archive
    assert archive is not None

    async def there() -> list[LogLine] | None:
        page = await read_log(archive.database, tx)
        return page.lines if len(page.lines) >= count else None

    found = await until(there, f"{count} lines of {tx}")
    assert found is not None
    return found


async def test_what_steps_say_is_read_with_their_transaction(eng: Engine) -> None:
    await lay_out(eng)
    await eng.node(logbook_flush_ms=20)
    tx = await eng.start("talks", {"amount": 7})
    await eng.final(tx)
    told = [(line.level, line.path, line.source, line.text) for line in await lines_of(eng, tx, 2)]
    assert told == [
        ("info", "1", "test/talks", "charged 7"),
        ("warning", "2", "test/in-a-thread", "from a thread"),
    ]
    failing = await eng.start("talks", {"amount": 8, "fails": True})
    await eng.final(failing)
    raised = (await lines_of(eng, failing, 2))[1]
    assert raised.level == "error" and raised.text.endswith("RuntimeError: no money")
    assert (await eng.transactions.show(failing)).flow[1]["stepId"] == raised.step_id


async def test_a_node_without_a_database_leaves_it_in_the_store_for_an_archiver(eng: Engine) -> None:
    await lay_out(eng)
    worker = await eng.node(logbook_flush_ms=20, database_url="")
    assert worker.archive is None
    tx = await eng.start("talks", {"amount": 7})
    await eng.final(tx)
    await eng.node(roles="archive", logbook_flush_ms=20)
    assert [line.text for line in await lines_of(eng, tx, 2)] == ["charged 7", "from a thread"]
    assert worker.record()["logEntriesDropped"] == 0


async def test_a_stopping_node_writes_what_was_said(eng: Engine) -> None:
    await lay_out(eng)
    node = await eng.node(logbook_flush_ms=60_000)
    tx = await eng.start("talks", {"amount": 7})
    await eng.final(tx)
    await node.stop()
    assert len(await lines_of(eng, tx, 2)) == 2


async def test_what_the_store_has_no_room_for_is_dropped_and_counted(eng: Engine) -> None:
    await lay_out(eng)
    worker = await eng.node(logbook_flush_ms=20, logbook_store_max=3, database_url="")
    ids = [await eng.start("talks", {"amount": number}) for number in range(5)]
    await eng.finals(ids)

    async def dropped() -> bool:
        return bool(worker.bench.logbook.dropped == 7)

    await until(dropped, "seven of ten found no room")
    assert worker.record()["logEntriesDropped"] == 7


async def test_while_the_database_is_away_it_is_kept_and_steps_do_not_wait(
    eng: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lay_out(eng)
    node = await eng.node(logbook_flush_ms=20, logbook_buffer_max=8)
    assert node.archive is not None
    tried = asyncio.Event()
    write_log = node.archive.database.write_log

    async def away(entries: Sequence[LogEntry]) -> None:
        tried.set()
        raise DatabaseUnreachable("it is away")

    monkeypatch.setattr(node.archive.database, "write_log", away)
    first = await eng.start("talks", {"amount": 1})
    await eng.final(first)
    await soon(tried.wait(), "writing was tried")
    ids = [await eng.start("talks", {"amount": number}) for number in range(10)]
    await eng.finals(ids)
    assert node.bench.logbook.dropped >= 10, "of twenty, as many as there is no room for"
    monkeypatch.setattr(node.archive.database, "write_log", write_log)
    assert len(await lines_of(eng, first, 2)) == 2
