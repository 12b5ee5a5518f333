"""A scheme with two banks for the tests of transfers; after each test, its books must balance."""

from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from typing import Any

from datp.archive.database import Database
from datp.archive.queries import queries
from datp.model.reply import iso
from datp.transfers.ledger import PACKAGE, Ledger
from datp.transfers.state import MOVES, TransferState
from datp.transfers.transfer import Transfer, TransferRequest

OWNER = "acme"
NOW_MS = 1_800_000_000_000

_numbers = count(1)


@dataclass
class Time:
    """A held clock."""

    now_ms: int = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


@dataclass
class Bank:
    """A ledger on a held clock, with anna and bert, who may owe 1000.00 USD each."""

    database: Database
    time: Time = field(default_factory=Time)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.database, self.time)

    async def open(self, liquidity: str = "1000", cap: str | None = None) -> "Bank":
        for name in ("anna", "bert"):
            await self.ledger.save_participant(OWNER, name)
            await self.ledger.set_limits(OWNER, name, "USD", liquidity, cap)
        return self

    def request(self, **changed: Any) -> TransferRequest:
        """A transfer of 10.00 USD from anna to bert that expires in ten seconds."""
        given: dict[str, Any] = {
            "transfer_id": f"t-{next(_numbers)}",
            "payer": "anna",
            "payee": "bert",
            "amount": "10.00",
            "currency": "USD",
            "expiration": iso(self.time.now_ms + 10_000),
        }
        return TransferRequest(**{**given, **changed})

    async def prepared(self, **changed: Any) -> Transfer:
        return (await self.ledger.prepare(OWNER, self.request(**changed))).transfer

    async def position(self, name: str, currency: str = "USD") -> str:
        positions = await self.ledger.positions(OWNER, name)
        return next(one.position for one in positions if one.currency == currency)

    async def states(self, transfer: Transfer) -> list[TransferState]:
        return [change.state for change in await self.ledger.history(transfer)]

    async def events(self, transfer: Transfer) -> list[str]:
        """What is to be told, or was."""
        text = f"SELECT kind FROM datp_transfer_event WHERE transfer = {transfer.id} ORDER BY id"
        return [row[0] for row in await self.rows(text)]

    async def check_books(self) -> None:
        """Positions are what transfers make them, histories are legal and end in the state, and have no gaps."""
        transfers = await self.rows("SELECT id, payer, payee, currency, amount, state, version FROM datp_transfer")
        wanted: dict[tuple[str, str], int] = {}
        for _, payer, payee, currency, amount, state, _ in transfers:
            if state in ("RESERVED", "COMMITTED"):
                wanted[payer, currency] = wanted.get((payer, currency), 0) + amount
            if state == "COMMITTED":
                wanted[payee, currency] = wanted.get((payee, currency), 0) - amount
        for participant, currency, position in await self.rows(
            "SELECT participant, currency, position FROM datp_position"
        ):
            assert position == wanted.get((participant, currency), 0), (participant, currency)
        histories: dict[int, list[tuple[int, str]]] = {}
        for transfer, version, state in await self.rows(
            "SELECT transfer, version, state FROM datp_transfer_change ORDER BY transfer, version"
        ):
            histories.setdefault(transfer, []).append((version, state))
        for number, *_, state, version in transfers:
            history = histories[number]
            assert [one for one, _ in history] == list(range(1, version + 1)), history
            assert history[-1][1] == state, history
            for (_, before), (_, after) in pairwise(history):
                assert before == after or TransferState(after) in MOVES[TransferState(before)], history

    async def rows(self, text: str) -> list[tuple[Any, ...]]:
        """What a query of a test finds."""
        asked = replace(queries(self.database.driver.dialect, PACKAGE)["now"], text=text)
        async with self.database.driver.reading() as connection:
            return await connection.rows(asked)
