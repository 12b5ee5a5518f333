"""Ids: what they are made of, and the one place where they are parsed and refused.

A transaction's id says where it lives and when it was made: `tx-` + partition (2) + `-` + time (9) + chance (13),
all in Crockford's base 32, so that ids sort by time and SQL inserts append. 28 characters in all.
"""

import binascii
import re
from hashlib import blake2b
from typing import NewType

from datp.errors import InvalidId
from datp.model.values import shown

TransactionId = NewType("TransactionId", str)
StepId = NewType("StepId", str)
NodeId = NewType("NodeId", str)
Owner = NewType("Owner", str)
NodeGroup = NewType("NodeGroup", str)
PipelineName = NewType("PipelineName", str)
PipelineVersion = NewType("PipelineVersion", str)
Partition = NewType("Partition", int)
Token = NewType("Token", str)

PARTITIONS_MAX = 1024
RANDOM_BITS = 65

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_DIGIT = {character: value for value, character in enumerate(_ALPHABET)}
_PARTITION_TEXT = tuple(_ALPHABET[n >> 5] + _ALPHABET[n & 31] for n in range(PARTITIONS_MAX))
_PARTITION_OF_TEXT = {text: Partition(n) for n, text in enumerate(_PARTITION_TEXT)}

_TRANSACTION_ID = re.compile(rf"tx-[{_ALPHABET}]{{2}}-[{_ALPHABET}]{{22}}")
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}(/[A-Za-z0-9._-]{1,64}){0,3}")
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def _time_text(ms: int) -> str:
    """45 bits in nine digits."""
    pair = _PARTITION_TEXT
    first = f"{_ALPHABET[ms >> 40 & 31]}{pair[ms >> 30 & 1023]}"
    return f"{first}{pair[ms >> 20 & 1023]}{pair[ms >> 10 & 1023]}{pair[ms & 1023]}"


def _chance_text(bits: int) -> str:
    """65 bits in thirteen digits. Written out, because every start makes one."""
    pair = _PARTITION_TEXT
    return (
        f"{_ALPHABET[bits >> 60 & 31]}{pair[bits >> 50 & 1023]}{pair[bits >> 40 & 1023]}{pair[bits >> 30 & 1023]}"
        f"{pair[bits >> 20 & 1023]}{pair[bits >> 10 & 1023]}{pair[bits & 1023]}"
    )


def new_transaction_id(partition: Partition, now_ms: int, chance: int) -> TransactionId:
    """An id for a transaction of this partition; `chance` is RANDOM_BITS random bits."""
    return TransactionId(f"tx-{_PARTITION_TEXT[partition]}-{_time_text(now_ms)}{_chance_text(chance)}")


def branch_id(parent: TransactionId, step_id: StepId, attempt: int, index: int) -> TransactionId:
    """The id of a parallel branch: the same for every rerun of the same attempt of the step."""
    digest = blake2b(f"{step_id}#{attempt}#{index}".encode(), digest_size=9).digest()
    return TransactionId(parent[:15] + _chance_text(int.from_bytes(digest) >> 7))


def parse_transaction_id(text: str) -> TransactionId:
    """The text, as a transaction's id; raises InvalidId."""
    if not isinstance(text, str) or not _TRANSACTION_ID.fullmatch(text):
        raise InvalidId(
            f"{shown(text)} is not a transaction's id; one looks like tx-00-1hf7yat00g0123456789ab", field="txId"
        )
    return TransactionId(text)


def partition_of(tx_id: str) -> Partition:
    """The partition that a well-formed id names."""
    return _PARTITION_OF_TEXT[tx_id[3:5]]


def made_at_ms(tx_id: TransactionId) -> int:
    """When the id was made, by its maker's clock."""
    number = 0
    for character in tx_id[6:15]:
        number = number * 32 + _DIGIT[character]
    return number


def partition_for(owner: Owner, external_id: str, partitions: int) -> Partition:
    """Where a transaction with this external id lives, so that its uniqueness is checked in one place."""
    return Partition(binascii.crc32(f"{owner}:{external_id}".encode()) % partitions)


def parse_owner(text: str) -> Owner:
    """The text, as an owner; no colon, so that `owner:externalId` has one reading."""
    if not isinstance(text, str) or not _OWNER.fullmatch(text):
        raise InvalidId(f"{shown(text)} is not an owner: 1 to 64 of A-Z a-z 0-9 . _ @ -", field="owner")
    return Owner(text)


def parse_name(text: str, field: str) -> str:
    """The text, as the name of a pipeline, a step type or a node group."""
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        raise InvalidId(
            f"{shown(text)} is not a name for {field}: 1 to 64 of A-Z a-z 0-9 . _ - beginning with a letter or"
            " digit, and up to three more such parts after a /",
            field=field,
        )
    return text


def parse_idempotency_key(text: str, length_max: int) -> str:
    """The text, as the key of one request; what a header can carry."""
    if not isinstance(text, str) or not 1 <= len(text) <= length_max or not _VISIBLE.fullmatch(text):
        raise InvalidId(
            f"{shown(text)} is not an Idempotency-Key: 1 to {length_max} visible ASCII characters",
            field="Idempotency-Key",
        )
    return text


def parse_external_id(text: str, length_max: int) -> str:
    """The text, as a client's own id: anything printable, within the limit."""
    if not isinstance(text, str) or not 1 <= len(text) <= length_max or _CONTROL.search(text):
        raise InvalidId(
            f"{shown(text)} is not an externalId: 1 to {length_max} characters, none of them a control character",
            field="externalId",
        )
    return text
