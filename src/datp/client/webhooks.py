"""Webhooks, as their receivers see them."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from datp.client.documents import Reply, Webhook
from datp.errors import BadSignature
from datp.model.signature import TOLERANCE_S, verify


class _Body(msgspec.Struct, frozen=True):
    type: str
    timestamp: datetime
    data: Reply


def verify_webhook(
    headers: Mapping[str, str], body: bytes, key: str | Sequence[str], *, tolerance_s: float = TOLERANCE_S
) -> Webhook:
    """What a webhook tells, once it is sure that DATP sent it, lately. Raises BadSignature: then answer 401.

    `body`: the very bytes that came. `key`: whsec_… or whpk_…, one or several, as `GET /v1/webhooks/keys` tells them. A
    webhook may come twice, with the same `id`; of several of one transaction the one with the highest
    `reply.sequence` is the last.
    """
    webhook_id = verify(headers, body, key, now_s=time.time(), tolerance_s=tolerance_s)
    try:
        said = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadSignature(f"The signature is right, but the body is no webhook of DATP: {error}") from None
    return Webhook(id=webhook_id, type=said.type, timestamp=said.timestamp, reply=said.data)
