"""The client, for asynchronous code.

async with AsyncClient("https://datp.example", key="datp_…") as client:
    reply = await client.start("payment", {"amount": 5}, external_id="order-17")
    reply = await client.wait(reply.tx_id)
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

import msgspec

from datp.client.documents import (
    BatchReply,
    Event,
    Flow,
    Listed,
    Page,
    Reply,
    Start,
    Switches,
    TransactionType,
    TransactionTypes,
)
from datp.client.problems import error_from
from datp.client.sse import read_events
from datp.client.transport import Answer, Transport
from datp.errors import ApiError, ApiUnreachable, DatpError, StoreError, TooBusy, TooMany
from datp.model.status import Status

T = TypeVar("T")

DEFAULT_URL: Final = "http://127.0.0.1:8080"
URL_VARIABLE: Final = "DATP_URL"
KEY_VARIABLE: Final = "DATP_API_KEY"

LONG_POLL_S: Final = 50.0
"""Of one request; many a proxy cuts a connection that is silent for a minute."""
PAGE: Final = 100
COMPLETED: Final = "transaction.completed"

SwitchValue = bool | int | float | str


class AsyncClient:
    """Every method raises the errors of `datp.errors`: BadRequest, NotFound, Conflict, …; ApiUnreachable when no answer
    has come for `retry_for_s`."""

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        timeout_s: float = 30,
        retry_for_s: float = 60,
        connections_max: int = 100,
    ) -> None:
        """`url` and `key` default to DATP_URL (or `datp dev`'s address) and DATP_API_KEY.

        timeout_s: of one try. retry_for_s: how long a request is tried again, when the API can't be reached or is too
        busy. connections_max: requests that are under way at once; others wait for their turn.
        """
        self._http = Transport(
            url or os.environ.get(URL_VARIABLE) or DEFAULT_URL,
            key or os.environ.get(KEY_VARIABLE),
            timeout_s=timeout_s,
            retry_for_s=retry_for_s,
            connections_max=connections_max,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Its connections are closed."""
        await self._http.close()

    # ── starting ─────────────────────────────────────────────────────────────────────────────────────────────

    async def start(
        self,
        transaction_type: str,
        input: Any = None,
        *,
        external_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        deadline: str | int | None = None,
        wait: float = 0,
        idempotency_key: str | None = None,
    ) -> Reply:
        """A transaction is started, once, however often the request had to be sent; the reply after `wait` seconds.

        metadata: `webhook`, `progressReports`, `lang`, …, and anything of your own. deadline: how long it may take in
        all, `10m` or milliseconds. wait: up to 60; it is answered as soon as it has ended. idempotency_key: give your
        own to start it once even across processes; else one is made for this call.
        """
        start = Start(
            transaction_type=transaction_type,
            input=input,
            external_id=external_id,
            metadata=metadata or {},
            deadline=deadline,
        )
        body = {**msgspec.to_builtins(start), **({"wait": wait} if wait else {})}
        # An externalId makes it start once by itself.
        key = idempotency_key or ("" if external_id is not None else _new_key())
        headers = {"Idempotency-Key": key} if key else {}
        answer = await self._http.ask("POST", "/v1/transactions", body=body, headers=headers, wait_s=wait)
        return _decode(answer, Reply)

    async def start_batch(self, starts: Sequence[Start]) -> Sequence[Reply | DatpError]:
        """A result for each, in order: the reply, or why it was not started. One bad one doesn't hurt the others."""
        items = [
            msgspec.to_builtins(start)
            if start.external_id
            else {**msgspec.to_builtins(start), "idempotencyKey": _new_key()}
            for start in starts
        ]
        answer = await self._http.ask("POST", "/v1/transactions/batch", body={"transactions": items})
        results: Sequence[Reply | DatpError] = [
            result.reply if result.reply is not None else _refusal(result.problem)
            for result in _decode(answer, BatchReply).results
        ]
        return results

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────

    async def get(self, tx_id: str) -> Reply:
        """The transaction, as it is now."""
        return _decode(await self._http.ask("GET", _path(tx_id)), Reply)

    async def get_by_external_id(self, external_id: str) -> Reply:
        """The transaction that was started with this externalId, as it is now."""
        return _decode(await self._http.ask("GET", f"/v1/external-ids/{quote(external_id, safe='')}"), Reply)

    async def wait(self, tx_id: str, timeout_s: float | None = None) -> Reply:
        """The transaction, when it has ended; or as it is when the time is up (`is_final` says which)."""
        loop_time = asyncio.get_running_loop().time
        ends_at = None if timeout_s is None else loop_time() + timeout_s
        while True:
            left_s = LONG_POLL_S if ends_at is None else max(0.0, min(LONG_POLL_S, ends_at - loop_time()))
            answer = await self._http.ask("GET", _path(tx_id), query={"wait": round(left_s, 3)}, wait_s=left_s)
            reply = _decode(answer, Reply)
            if reply.is_final or (ends_at is not None and loop_time() >= ends_at):
                return reply

    async def flow(self, tx_id: str) -> Flow:
        """Every step of the transaction, as it ran."""
        return _decode(await self._http.ask("GET", f"{_path(tx_id)}/flow"), Flow)

    async def events(self, tx_id: str, *, after: int | None = None) -> AsyncIterator[Event]:
        """What happens to the transaction, from how it is now until its end; it goes on where it was cut off.

        after: the sequence of the last reply that you know; what was before is left out.
        """
        known = after
        patience = self._http.patience()
        while True:
            headers = {} if known is None else {"Last-Event-ID": str(known)}
            try:
                async with self._http.stream(f"{_path(tx_id)}/events", headers) as response:
                    if response.status == 204:
                        return
                    async for kind, data in read_events(response.content):
                        event = Event(kind, _decode_body(data, Reply))
                        known = event.reply.sequence
                        patience = self._http.patience()
                        yield event
                        if event.type == COMPLETED:
                            return
            except (ApiUnreachable, TooBusy, TooMany, StoreError) as error:
                await patience.wait(error)

    async def switches(self, tx_id: str) -> dict[str, SwitchValue]:
        """The switches of the transaction, as they are now."""
        return _decode(await self._http.ask("GET", f"{_path(tx_id)}/switches"), Switches).switches

    async def transaction_types(self) -> Sequence[TransactionType]:
        """What may be started."""
        return _decode(await self._http.ask("GET", "/v1/transaction-types"), TransactionTypes).transaction_types

    async def list(
        self,
        *,
        status: Status | str | None = None,
        transaction_type: str | None = None,
        external_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> AsyncIterator[Listed]:
        """Your transactions, live and archived, the newest first; read page by page, as far as you go.

        since, until: those that started then or later, and before; times with their zone.
        """
        cursor: str | None = None
        while True:
            query = {
                "status": None if status is None else str(status),
                "transactionType": transaction_type,
                "externalId": external_id,
                "from": _milliseconds(since),
                "to": _milliseconds(until),
                "cursor": cursor,
                "limit": PAGE,
            }
            page = _decode(await self._http.ask("GET", "/v1/transactions", query=query), Page)
            for listed in page.transactions:
                yield listed
            cursor = page.next_cursor
            if cursor is None:
                return

    # ── acting ───────────────────────────────────────────────────────────────────────────────────────────────

    async def set_switch(self, tx_id: str, name: str, value: SwitchValue | None) -> None:
        """The switch has this value (None: it is gone), and the transaction goes on if it waited for it."""
        await self._http.ask("PUT", f"{_path(tx_id)}/switches/{quote(name, safe='')}", body={"value": value})

    async def cancel(self, tx_id: str, reason: str = "") -> Reply:
        """The transaction ends `cancelled`, now or as soon as what runs has ended; what was done is undone."""
        answer = await self._http.ask("POST", f"{_path(tx_id)}/cancel", body={"reason": reason})
        return _decode(answer, Reply)


def _path(tx_id: str) -> str:
    return f"/v1/transactions/{quote(tx_id, safe='')}"


def _new_key() -> str:
    return secrets.token_urlsafe(18)


def _decode(answer: Answer, kind: type[T]) -> T:
    return _decode_body(answer.body, kind)


def _decode_body(body: bytes, kind: type[T]) -> T:
    """Raises ApiError for what is no such document: something else answers there, or a reply converter is at work."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(f"The answer is not a {kind.__name__} of DATP: {error}") from None


def _refusal(problem: Any) -> DatpError:
    return ApiError("It was neither started nor refused") if problem is None else error_from(problem)


def _milliseconds(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1000)
