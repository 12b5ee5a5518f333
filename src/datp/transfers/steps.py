"""The step types of transfers: a pipeline reserves, does its work or waits, and commits; when it fails, it aborts.

    - id: hold
      step: transfer/prepare
      with: {payer: anna, payee: bert, currency: USD, expiresIn: 10m}
    - id: approval
      step: util/wait
      with: {switch: approved}
    - id: pay
      step: transfer/fulfil

The transfer's id is the step's idempotency key, so that a rerun finds the same transfer. When it ends by itself, the
transaction's switch `transfer` says how: COMMITTED, ABORTED or EXPIRED.
"""

from typing import Any, Final

import msgspec

from datp.archive.database import Database
from datp.errors import BadRequest, NotFound, TransferRefused
from datp.model.outcome import Failed
from datp.model.pipeline import Duration, duration_ms
from datp.model.reply import iso
from datp.model.values import shown
from datp.settings import Settings
from datp.steps import Context, step
from datp.transfers.ledger import Ledger
from datp.transfers.state import ShownState, TransferCode
from datp.transfers.transfer import ShownTransfer, TransferRequest, show

KEPT: Final = "transfers"


class PrepareDefinition(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What of the transfer the input doesn't say; the input's `amount`, `payer`, … go before these."""

    payer: str = ""
    payee: str = ""
    amount: str = ""
    currency: str = ""
    expires_in: Duration | None = None
    """None: it never expires by itself."""
    switch: str = "transfer"
    condition: str | None = None


class FulfilDefinition(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    fulfilment: str = ""


class AbortDefinition(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    error_code: str = TransferCode.VALIDATION.value
    reason: str = ""


class _Opened:
    """A ledger that the steps of a node share."""

    def __init__(self, settings: Settings) -> None:
        if not settings.database_url:
            raise NotFound("Transfers are kept in SQL, and this node has no database: DATP_DATABASE_URL names it")
        self._database = Database(settings.database_url, settings)
        self.ledger = Ledger(self._database)

    async def close(self) -> None:
        await self._database.close()


async def _ledger(context: Context) -> Ledger:
    async def make() -> _Opened:
        return _Opened(context.tools.settings)

    opened: _Opened = await context.tools.kept(KEPT, make)
    return opened.ledger


async def release(context: Context, output: ShownTransfer) -> None:
    """What was reserved is given back; a transfer that has ended stays as it is."""
    try:
        await (await _ledger(context)).abort(context.owner, output.transfer_id, text="The transaction failed")
    except TransferRefused as refused:
        context.log.info("%s: nothing to release: %s", output.transfer_id, refused)


@step(
    "transfer/prepare",
    undo=release,
    default_definition={"payer": "anna", "payee": "bert", "currency": "USD", "expiresIn": "10m"},
)
async def prepare(context: Context, input: Any, definition: PrepareDefinition) -> ShownTransfer | Failed:
    """Prepares a transfer and reserves its amount; if the transaction fails later on, it is aborted."""
    ledger = await _ledger(context)
    given = input if isinstance(input, dict) else {}

    def said(name: str) -> Any:
        value = given.get(name, getattr(definition, name))
        if value in ("", None):
            raise BadRequest(f"{name} is neither in the input nor in the definition", field=name)
        return value

    ends = None
    if definition.expires_in is not None:
        held = await _held(ledger, context)
        # The deadline is set once: a rerun asks for the same transfer.
        ends = held or iso(await ledger.now() + duration_ms(definition.expires_in, "expiresIn"))
    request = TransferRequest(
        transfer_id=context.idempotency_key,
        payer=said("payer"),
        payee=said("payee"),
        amount=said("amount"),
        currency=said("currency"),
        expiration=ends,
        condition=definition.condition,
        tx_id=context.tx_id,
        switch=definition.switch,
    )
    transfer = show((await ledger.prepare(context.owner, request)).transfer)
    if transfer.state == ShownState.ABORTED and transfer.error is not None:
        document = {"error": transfer.error.text, "code": transfer.error.code, "transferId": transfer.transfer_id}
        return Failed(document, transfer.error.text)
    return transfer


async def _held(ledger: Ledger, context: Context) -> str | None:
    """The deadline that an earlier run of this step gave its transfer."""
    try:
        held = await ledger.read(context.owner, context.idempotency_key)
    except NotFound:
        return None
    return None if held.expiration is None else iso(held.expiration)


@step("transfer/fulfil", default_definition={})
async def fulfil(context: Context, input: Any, definition: FulfilDefinition) -> ShownTransfer | Failed:
    """Commits the transfer that an earlier step prepared; its id is the input's transferId, or that step's output."""
    return await _ended(context, input, "fulfil", definition.fulfilment)


@step("transfer/abort", default_definition={})
async def abort(context: Context, input: Any, definition: AbortDefinition) -> ShownTransfer | Failed:
    """Aborts the transfer that an earlier step prepared: what it had reserved is released."""
    return await _ended(context, input, "abort", definition.error_code, definition.reason)


async def _ended(context: Context, input: Any, move: str, *more: str) -> ShownTransfer | Failed:
    ledger = await _ledger(context)
    try:
        return show(await getattr(ledger, move)(context.owner, _transfer_id(context, input), *more))
    except TransferRefused as refused:
        return Failed({"error": str(refused), "code": refused.reason}, str(refused))


def _transfer_id(context: Context, input: Any) -> str:
    """The input's transferId; else that of the step whose output has one. Raises BadRequest."""
    for document in (input, *reversed(list((context.scope.get("steps") or {}).values()))):
        if isinstance(document, dict) and isinstance(document.get("transferId"), str):
            found: str = document["transferId"]
            return found
    raise BadRequest(f"neither the input {shown(input)} nor a step before has a transferId", field="transferId")
