"""The nouns: a transfer, what is asked to prepare one, participants and their positions. Pure."""

import hashlib
import re
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from datp.errors import BadRequest
from datp.model.ids import parse_transaction_id
from datp.model.reply import iso
from datp.model.values import printable, shown
from datp.transfers.money import format_amount, parse_amount, parse_currency
from datp.transfers.state import PENDING, SHOWN_AS, TEXTS, ShownState, TransferCode, TransferState

TEXT_MAX: Final = 250
_TRANSFER_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_PARTICIPANT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class TransferRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a client asks to prepare."""

    transfer_id: str
    payer: str
    payee: str
    amount: Any
    """A text with the currency's decimals, "12.50"; a whole number is taken too."""
    currency: str
    expiration: str | None = None
    """When it expires: a time of ISO 8601 with its zone. None: never."""
    condition: str | None = None
    """SHA-256, in hexadecimal, of what the payee must bring to fulfil it."""
    reserve: bool = True
    """False: it is received, and reserved by a later call."""
    tx_id: str | None = None
    """The transaction whose switch is set when the transfer ends."""
    switch: str | None = None
    """The switch; `transfer` when only txId is given."""


class Checked(msgspec.Struct, frozen=True):
    """A request whose form is right."""

    transfer_id: str
    payer: str
    payee: str
    amount: int
    currency: str
    expiration: int | None
    condition: str
    reserve: bool
    tx_id: str
    switch: str
    request_hash: str


class Transfer(msgspec.Struct, frozen=True, kw_only=True):
    """A transfer, as SQL keeps it; the fields are in the order of the queries."""

    id: int
    owner: str
    transfer_id: str
    request_hash: str
    payer: str
    payee: str
    currency: str
    amount: int
    state: TransferState
    version: int
    expiration: int | None
    condition: str
    fulfilment: str
    tx_id: str
    switch: str
    error_code: str
    error_text: str
    created_at: int
    changed_at: int

    @property
    def is_pending(self) -> bool:
        """A deadline ends it."""
        return self.state in PENDING


class TransferError(msgspec.Struct, frozen=True, rename="camel"):
    """Why it ended as it did."""

    code: str
    text: str


class ShownTransfer(msgspec.Struct, frozen=True, rename="camel"):
    """What a client sees."""

    transfer_id: str
    state: ShownState
    payer: str
    payee: str
    amount: str
    currency: str
    expiration: str | None
    fulfilment: str | None
    error: TransferError | None
    created_at: str
    changed_at: str
    version: int


class Change(msgspec.Struct, frozen=True, rename="camel"):
    """A row of the history."""

    version: int
    state: TransferState
    reason: str
    at: str


class Position(msgspec.Struct, frozen=True, rename="camel"):
    """What a participant may owe in a currency, and owes."""

    participant: str
    currency: str
    liquidity: str
    net_debit_cap: str | None
    position: str
    """What it has reserved and paid, less what it was paid. Negative: it is owed."""


def show(transfer: Transfer) -> ShownTransfer:
    """The transfer as its client sees it: no internal state leaks."""
    return ShownTransfer(
        transfer_id=transfer.transfer_id,
        state=SHOWN_AS[transfer.state],
        payer=transfer.payer,
        payee=transfer.payee,
        amount=format_amount(transfer.amount, transfer.currency),
        currency=transfer.currency,
        expiration=None if transfer.expiration is None else iso(transfer.expiration),
        fulfilment=transfer.fulfilment or None,
        error=TransferError(transfer.error_code, transfer.error_text) if transfer.error_code else None,
        created_at=iso(transfer.created_at) or "",
        changed_at=iso(transfer.changed_at) or "",
        version=transfer.version,
    )


def check_request(request: TransferRequest) -> Checked:
    """The request, if its form is right; raises BadRequest."""
    currency = parse_currency(request.currency)
    payer, payee = parse_participant(request.payer, "payer"), parse_participant(request.payee, "payee")
    if payer == payee:
        raise BadRequest(f"payer and payee are both {payer}: a transfer has two parties", field="payee")
    if request.condition is not None and not _DIGEST.fullmatch(request.condition):
        raise BadRequest("condition must be a SHA-256 in hexadecimal: 64 of 0-9 a-f", field="condition")
    if request.switch is not None and request.tx_id is None:
        raise BadRequest("switch names a switch, but txId is missing: whose is it?", field="txId")
    tx_id = parse_transaction_id(request.tx_id) if request.tx_id is not None else ""
    checked = Checked(
        transfer_id=parse_transfer_id(request.transfer_id),
        payer=payer,
        payee=payee,
        amount=parse_amount(request.amount, currency),
        currency=currency,
        expiration=None if request.expiration is None else parse_time(request.expiration, "expiration"),
        condition=request.condition or "",
        reserve=request.reserve,
        tx_id=tx_id,
        switch=(request.switch or "transfer") if tx_id else "",
        request_hash="",
    )
    said = msgspec.json.encode(checked)
    return msgspec.structs.replace(checked, request_hash=hashlib.sha256(said).hexdigest()[:32])


def parse_transfer_id(text: object) -> str:
    """The text, as a transfer's id; raises BadRequest."""
    if not isinstance(text, str) or not _TRANSFER_ID.fullmatch(text):
        raise BadRequest(
            f"{shown(text)} is not a transfer's id: 1 to 64 of A-Z a-z 0-9 . _ : -, beginning with a letter or digit",
            field="transferId",
        )
    return text


def parse_participant(text: object, field: str) -> str:
    """The text, as a participant's name; raises BadRequest."""
    if not isinstance(text, str) or not _PARTICIPANT.fullmatch(text):
        raise BadRequest(f"{shown(text)} is not a participant: 1 to 64 of A-Z a-z 0-9 . _ -", field=field)
    return text


def parse_time(text: object, field: str) -> int:
    """A time of ISO 8601, as milliseconds since 1970 UTC; raises BadRequest. A zone is needed: an hour is money."""
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise BadRequest(f"{shown(text)} is not a time with its zone, such as 2026-11-19T10:00:00Z", field=field)
    since = time.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    ms = (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000
    if ms < 0:
        raise BadRequest(f"{text} is before 1970", field=field)
    return ms


def is_fulfilled_by(condition: str, fulfilment: str) -> bool:
    """Whether this is what the condition was made from."""
    try:
        preimage = bytes.fromhex(fulfilment)
    except ValueError:
        return False
    return hashlib.sha256(preimage).hexdigest() == condition


def reason_of(code: TransferCode, text: str = "") -> str:
    """The text of an end, within its limit."""
    return printable(text, TEXT_MAX) or TEXTS[code]
