"""Transactions, for the client whose they are: start, read, list, flow, switches, cancel."""

from typing import Annotated, Final

import msgspec

from datp.api.http.api import Api
from datp.api.http.routes import Answer, Call, Route, Words
from datp.errors import DatabaseError, NotFound
from datp.model.api_key import Role
from datp.model.ids import TransactionId
from datp.model.reply import Reply, encode_reply

WAIT_MAX_S: Final = 60

TxId = Annotated[str, msgspec.Meta(description="The transaction's id.", examples=["tx-00-1hf7yat00g0123456789ab"])]


class OneTransaction(Words, frozen=True):
    tx_id: TxId


class TransactionRoutes:
    """The routes, over one API."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/v1/transactions/{txId}",
                handler=self.read_transaction,
                role=Role.CLIENT,
                tag="transactions",
                refusals=(NotFound, DatabaseError),
            ),
        ]

    async def read_transaction(self, call: Call, path: OneTransaction) -> Answer[Reply]:
        """Read a transaction: its reply, as it is now."""
        reply = await self._api.transactions.reply(TransactionId(path.tx_id))
        if not call.caller.owns(reply.owner):
            raise NotFound(f"There is no transaction {path.tx_id}")
        return Answer(encode_reply(reply))
