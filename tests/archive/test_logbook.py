"""What steps wrote is read in its order."""

import msgspec
from archived import tx_id

from datp.archive.database import Database
from datp.archive.logbook import LogEntry, LogLevel


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
