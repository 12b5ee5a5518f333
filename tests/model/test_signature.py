"""Signatures: ours are taken by the public library, theirs by ours, and nothing else by either."""

import base64
import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from datp.errors import BadDefinition, BadSignature
from datp.model.signature import SigningKey, new_key, signed_headers, verify

BODY = json.dumps({"type": "transaction.completed", "data": {"ü": [1, 2.5, None]}}).encode()
SECRET = new_key("v1", bytes(range(32)))
PRIVATE = new_key("v1a", bytes(range(32)))
NOW_S = 1_800_000_000


def signed(*keys: str, body: bytes = BODY, at_s: int = NOW_S, webhook_id: str = "tx-1-7") -> dict[str, str]:
    return signed_headers(webhook_id, at_s, body, [SigningKey(key) for key in keys])


def test_the_public_library_takes_what_is_signed_here() -> None:
    headers = signed(SECRET, at_s=int(time.time()))
    assert Webhook(SECRET).verify(BODY, headers) == json.loads(BODY)
    with pytest.raises(WebhookVerificationError):
        Webhook(new_key("v1", bytes(32))).verify(BODY, headers)


def test_what_the_public_library_signs_is_taken_here() -> None:
    at = datetime.fromtimestamp(NOW_S, UTC)
    signature = Webhook(SECRET).sign("msg_1", at, BODY.decode())
    headers = {"Webhook-Id": "msg_1", "Webhook-Timestamp": str(NOW_S), "Webhook-Signature": signature}
    assert verify(headers, BODY, SECRET, now_s=NOW_S) == "msg_1"


def test_the_vector_of_the_standard_for_ed25519() -> None:
    key = SigningKey("whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=")
    headers = signed_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}', [key])
    assert headers["webhook-signature"] == (
        "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag=="
    )


def test_a_public_key_is_enough_to_verify_and_tells_no_secret() -> None:
    public = SigningKey(PRIVATE).for_receivers
    assert public.startswith("whpk_")
    assert verify(signed(PRIVATE), BODY, public, now_s=NOW_S) == "tx-1-7"
    assert verify(signed(PRIVATE), BODY, PRIVATE, now_s=NOW_S) == "tx-1-7"
    assert base64.b64decode(public[5:]) != bytes(range(32))
    assert SigningKey(SECRET).for_receivers == SECRET


def test_while_keys_are_changed_either_fits() -> None:
    newer, other = new_key("v1", bytes([1] * 32)), new_key("v1", bytes([2] * 32))
    headers = signed(newer, PRIVATE, SECRET, at_s=int(time.time()))
    for key in (newer, SECRET):
        assert Webhook(key).verify(BODY, headers)
        assert verify(headers, BODY, key, now_s=time.time())
    assert verify(headers, BODY, [other, SigningKey(PRIVATE).for_receivers], now_s=time.time())
    with pytest.raises(BadSignature):
        verify(headers, BODY, other, now_s=time.time())


@given(st.binary(max_size=300), st.binary(min_size=24, max_size=64), st.integers(0, 10**10))
def test_what_was_signed_is_taken_and_nothing_else_is(body: bytes, secret: bytes, at_s: int) -> None:
    key = "whsec_" + base64.b64encode(secret).decode()
    headers = signed(key, body=body, at_s=at_s)
    assert verify(headers, body, key, now_s=at_s) == "tx-1-7"
    for others in ({"webhook-id": "tx-1-8"}, {"webhook-timestamp": str(at_s + 1)}):
        with pytest.raises(BadSignature):
            verify({**headers, **others}, body, key, now_s=at_s)
    with pytest.raises(BadSignature):
        verify(headers, body + b" ", key, now_s=at_s)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_request_without_a_header_is_refused(name: str) -> None:
    headers = signed(SECRET)
    del headers[name]
    with pytest.raises(BadSignature, match=name):
        verify(headers, BODY, SECRET, now_s=NOW_S)


@pytest.mark.parametrize("apart_s", [-301, 301, 10**9])
def test_a_recorded_request_is_refused_and_a_wrong_clock_told(apart_s: int) -> None:
    with pytest.raises(BadSignature, match="clock"):
        verify(signed(SECRET), BODY, SECRET, now_s=NOW_S + apart_s)
    assert verify(signed(SECRET), BODY, SECRET, now_s=NOW_S + 299)


@given(
    st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature"]),
    st.text() | st.text("v1a, =+/0123456789٣"),
)
def test_whatever_stands_in_a_header_is_taken_or_refused(name: str, text: str) -> None:
    headers = {**signed(SECRET), name: text}
    if headers == signed(SECRET):
        return
    with pytest.raises(BadSignature):
        verify(headers, BODY, SECRET, now_s=NOW_S)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "secret",
        "whsec_",
        "whsec_!!!",
        f"whsec_{'A' * 30}",
        f"whsec_{'A' * 90}",
        "whsk_AAAA",
        f"whpk_{'A' * 44}é",
        5,
    ],
)
def test_what_is_no_key_is_refused_without_saying_it(key: Any) -> None:
    with pytest.raises(BadDefinition) as caught:
        verify(signed(SECRET), BODY, key if isinstance(key, str) else [key], now_s=NOW_S)
    assert "AAAA" not in str(caught.value)


def test_a_key_that_verifies_does_not_sign() -> None:
    with pytest.raises(BadDefinition, match="verifies"):
        SigningKey(SigningKey(PRIVATE).for_receivers)


def test_a_key_without_its_padding_is_the_same_key() -> None:
    assert verify(signed(SECRET), BODY, SECRET.rstrip("="), now_s=NOW_S)
