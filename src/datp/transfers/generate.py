"""The data set: transfers at random, as many as asked, with their histories; the same seed makes the same ones.

One in so many is pending and past its deadline; of the others one in nine is reserved and expires later, and the rest
have ended in one of eight ways, so that there are some 3.5 changes for each transfer.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any, Final

from datp.archive.database import Database
from datp.archive.drivers import Connection
from datp.archive.queries import queries
from datp.errors import BadRequest
from datp.transfers.ledger import PACKAGE, Ledger
from datp.transfers.money import DECIMALS, format_amount, parse_currency
from datp.transfers.state import TransferState

BATCH: Final = 10_000
"""Transfers of one SQL transaction."""

HOUR_MS: Final = 3_600_000
PAYER, PAYEE = "dfsp1", "dfsp2"

_S = TransferState
_PREPARED: Final = (_S.RECEIVED_PREPARE,)
_RESERVED: Final = (_S.RECEIVED_PREPARE, _S.RESERVED)
_COMMITTED: Final = (*_RESERVED, _S.RECEIVED_FULFIL, _S.COMMITTED)

PATHS: Final[tuple[tuple[TransferState, ...], ...]] = (
    _RESERVED,
    _COMMITTED,
    _COMMITTED,
    _COMMITTED,
    _COMMITTED,
    (*_RESERVED, _S.ABORTED),
    (*_RESERVED, _S.ABORTED),
    (*_RESERVED, _S.EXPIRED_RESERVED),
    (*_PREPARED, _S.REJECTED),
)
"""How those that are not due went, each equally likely."""

FOREIGN_PATHS: Final[tuple[tuple[str, ...], ...]] = tuple(
    ("RECEIVED_PREPARE", "RESERVED", *more)
    for more in (
        (),
        ("RECEIVED_FULFIL",),
        ("RECEIVED_FULFIL", "COMMITTED"),
        ("RECEIVED_FULFIL", "COMMITTED", "PENDING_SETTLEMENT"),
        ("RECEIVED_FULFIL", "COMMITTED", "PENDING_SETTLEMENT", "SETTLED"),
        ("REJECTED",),
        ("ABORTED",),
        ("FAILED",),
        ("EXPIRED",),
    )
)
"""The same of a hub's history, which goes on to settlement: 32 changes for nine transfers."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be made."""

    total: int = 1_000_000
    expired: int = 1_000
    amount: tuple[int, int] = (1, 100)
    currencies: tuple[str, ...] = ("USD", "EUR", "ZAR")
    hours: tuple[int, int] = (0, 168)
    """How far from now deadlines are, into the past and into the future."""
    seed: int = 1
    owner: str = "dev"

    def check(self) -> "Wanted":
        """Itself, if it can be made; raises BadRequest."""
        for currency in self.currencies:
            parse_currency(currency, "currencies")
        if not 0 <= self.expired <= self.total:
            raise BadRequest(f"expired ({self.expired}) must be from 0 to total ({self.total})", field="expired")
        if not 0 < self.amount[0] <= self.amount[1] or not 0 <= self.hours[0] < self.hours[1]:
            raise BadRequest("amount and hours are ranges: the lower end first, amounts from 1", field="amount")
        return self


@dataclass(frozen=True)
class Made:
    """A generated transfer."""

    number: int
    transfer_id: str
    currency: str
    amount: int
    path: Sequence[str]
    created_at: int
    expiration: int


def made(wanted: Wanted, now_ms: int, paths: Sequence[Sequence[str]] = PATHS) -> Iterator[Made]:
    """The transfers, in the order in which they were received."""
    chance = random.Random(wanted.seed)
    due = set(chance.sample(range(wanted.total), wanted.expired))
    low, high = wanted.hours[0] * HOUR_MS, wanted.hours[1] * HOUR_MS
    for number in range(wanted.total):
        currency = chance.choice(wanted.currencies)
        away = chance.randint(max(low, 1), high)
        if number in due:
            path: Sequence[str] = chance.choice((_PREPARED, _RESERVED))
            expiration = now_ms - away
            created_at = expiration - chance.randint(180_000, 3_780_000)
        else:
            path = chance.choice(paths)
            expiration = now_ms + HOUR_MS + away
            created_at = now_ms
        units = chance.randint(wanted.amount[0], wanted.amount[1])
        amount = units * 10 ** DECIMALS[currency]
        yield Made(number, f"g{wanted.seed}-{number:09d}", currency, amount, path, created_at, expiration)


async def generate(
    database: Database, wanted: Wanted, on_progress: Callable[[int], None] = lambda _: None
) -> tuple[int, int]:
    """The ledger has them, and positions are what they make of them; how many transfers and changes."""
    wanted.check()
    ledger = Ledger(database)
    most = wanted.total * wanted.amount[1]
    for name in (PAYER, PAYEE):
        await ledger.save_participant(wanted.owner, name)
        for currency in wanted.currencies:
            limit = format_amount(most * 10 ** DECIMALS[currency], currency)
            await ledger.set_limits(wanted.owner, name, currency, limit)
    known = queries(database.driver.dialect, PACKAGE)
    async with database.driver.reading() as connection:
        ((last,),) = await connection.rows(known["last_transfer"])
    now = await ledger.now()
    changes = 0
    every = made(wanted, now)
    while batch := list(islice(every, BATCH)):
        transfers = [_row(last + 1 + one.number, wanted.owner, one) for one in batch]
        history = [
            (last + 1 + one.number, version, str(state), "", one.created_at)
            for one in batch
            for version, state in enumerate(one.path, 1)
        ]
        async with database.driver.writing() as connection:
            await connection.run_many(known["add_transfers"], transfers)
            await connection.run_many(known["add_changes"], history)
        changes += len(history)
        on_progress(batch[-1].number + 1)
    async with database.driver.writing() as connection:
        if "continue_ids" in known:
            await connection.rows(known["continue_ids"])
        await _put_positions(connection, database, wanted.owner)
    return wanted.total, changes


async def generate_foreign(
    database: Database, wanted: Wanted, on_progress: Callable[[int], None] = lambda _: None
) -> tuple[int, int]:
    """The tables `transfer` and `transferStateChange` of a hub have them; how many transfers and changes."""
    wanted.check()
    known = queries(database.driver.dialect, PACKAGE)
    async with database.driver.writing() as connection:
        await connection.run(known["create_foreign_transfers"])
        await connection.run(known["create_foreign_changes"])
        if "index_foreign_changes" in known:
            await connection.run(known["index_foreign_changes"])
    now = await Ledger(database).now()
    # SQLite has neither times nor decimals: both are texts there.
    is_text = database.driver.dialect == "sqlite"
    time_of: Callable[[int], Any] = _text_of if is_text else _time_of
    amount_of: Callable[[str], Any] = str if is_text else Decimal
    changes = 0
    every = made(wanted, now, FOREIGN_PATHS)
    while batch := list(islice(every, BATCH)):
        transfers = [
            (
                one.transfer_id,
                amount_of(format_amount(one.amount, one.currency)),
                one.currency,
                time_of(one.expiration),
                time_of(one.created_at),
            )
            for one in batch
        ]
        history = [(one.transfer_id, str(state), time_of(one.created_at)) for one in batch for state in one.path]
        async with database.driver.writing() as connection:
            await connection.run_many(known["add_foreign_transfers"], transfers)
            await connection.run_many(known["add_foreign_changes"], history)
        changes += len(history)
        on_progress(batch[-1].number + 1)
    return wanted.total, changes


def _time_of(ms: int) -> datetime:
    """As a column of times without zone has it: UTC."""
    return datetime(1970, 1, 1) + timedelta(milliseconds=ms)  # noqa: DTZ001  # the column has no zone


def _text_of(ms: int) -> str:
    return _time_of(ms).isoformat(" ", "milliseconds")


async def shift(database: Database, owner: str, by_ms: int) -> int:
    """Every pending deadline of the owner is moved by so much; how many."""
    known = queries(database.driver.dialect, PACKAGE)
    async with database.driver.writing() as connection:
        return await connection.run(known["shift_expirations"], owner=owner, by_ms=by_ms)


async def _put_positions(connection: Connection, database: Database, owner: str) -> None:
    known = queries(database.driver.dialect, PACKAGE)
    for party, currency, position in await connection.rows(known["sum_reserved"], owner=owner):
        await connection.run(
            known["put_position"], owner=owner, participant=party, currency=currency, position=int(position)
        )


def _row(number: int, owner: str, one: Made) -> tuple[Any, ...]:
    state = TransferState(one.path[-1])
    code = "3303" if state == _S.EXPIRED_RESERVED else "3100" if state == _S.ABORTED else ""
    return (
        number, owner, one.transfer_id, "", PAYER, PAYEE, one.currency, one.amount, state.value, len(one.path),
        one.expiration, "", "", "", "", code, "", one.created_at, one.created_at,
    )  # fmt: skip
