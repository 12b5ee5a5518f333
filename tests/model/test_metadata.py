"""What a start's metadata asks for, and what of it is refused."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datp.errors import BadRequest
from datp.model.metadata import (
    NOTHING_ASKED,
    Metadata,
    Webhook,
    check_webhook_url,
    decode_webhook,
    encode_webhook,
    parse_metadata,
)

URL = "https://client.example/hook?order=7"
MOST = 2048


def parsed(**metadata: Any) -> Metadata:
    return parse_metadata(metadata, MOST)


def refused(**metadata: Any) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        parse_metadata(metadata, MOST)
    return caught.value


def test_nothing_is_asked_by_who_says_nothing() -> None:
    assert parsed() == NOTHING_ASKED == parsed(shop=3, webhooks=["mine"], lang=None, webhook=None, poll=None)


def test_everything_that_can_be_asked() -> None:
    asked = parsed(
        webhook=URL,
        progressReports="all",
        statusReports=True,
        poll="short",
        pollReplyCancelsWebhook=True,
        lang="fil-PH",
        anything={"of": "the client's"},
    )
    assert asked == Metadata(
        webhook=Webhook(URL, progress="all", status=True, poll_cancels=True), poll="short", lang="fil-PH"
    )


@pytest.mark.parametrize(
    ("webhook", "stored"),
    [
        (None, ""),
        (Webhook(URL), f'{{"url":"{URL}"}}'),
        (Webhook(URL, progress=True), f'{{"url":"{URL}","progress":true}}'),
        (
            Webhook(URL, progress="all", status=True, poll_cancels=True),
            f'{{"url":"{URL}","progress":"all","status":true,"pollCancels":true}}',
        ),
    ],
)
def test_a_webhook_is_stored_in_the_words_that_scripts_read(webhook: Webhook | None, stored: str) -> None:
    assert encode_webhook(webhook) == stored
    if webhook is not None:
        assert decode_webhook(stored) == webhook


@pytest.mark.parametrize(
    ("metadata", "field", "says"),
    [
        ({"reply": "longpoll"}, "metadata.reply", "metadata.webhook"),
        ({"cancelWebhook": True}, "metadata.cancelWebhook", "pollReplyCancelsWebhook"),
        ({"poll": "longpoll"}, "metadata.poll", '"long" or "short"'),
        ({"poll": ["long"]}, "metadata.poll", '"long" or "short"'),
        ({"lang": 5}, "metadata.lang", "language"),
        ({"lang": "english please"}, "metadata.lang", "language"),
        ({"webhook": URL, "progressReports": "some"}, "metadata.progressReports", '"all"'),
        ({"webhook": URL, "progressReports": 1}, "metadata.progressReports", '"all"'),
        ({"webhook": URL, "statusReports": "all"}, "metadata.statusReports", "true or false"),
        ({"webhook": URL, "pollReplyCancelsWebhook": 0.0}, "metadata.pollReplyCancelsWebhook", "true or false"),
        ({"progressReports": True}, "metadata.progressReports", "names none"),
        ({"statusReports": True}, "metadata.statusReports", "names none"),
        ({"pollReplyCancelsWebhook": True}, "metadata.pollReplyCancelsWebhook", "names none"),
        ({"webhook": 5}, "metadata.webhook", "must be a URL"),
        ({"webhook": ""}, "metadata.webhook", "begin with http"),
    ],
)
def test_what_is_wrong_is_refused_with_its_field(metadata: dict[str, Any], field: str, says: str) -> None:
    error = refused(**metadata)
    assert error.field == field
    assert says in str(error)


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "http://127.0.0.1:8080/hook",
        "HTTP://Client.Example",
        "https://xn--mnchen-3ya.example/%C3%BC?a=b%20c",
        "http://[2001:db8::1]:8443/",
        "http://svc_1.internal./x",
    ],
)
def test_a_url_that_can_be_called_is_taken_as_it_is(url: str) -> None:
    assert check_webhook_url(url, MOST) == url


@pytest.mark.parametrize(
    "url",
    [
        "ftp://client.example/",
        "file:///etc/passwd",
        "client.example/hook",
        "https://",
        "https:///hook",
        "https://user@client.example/",
        "https://user:password@client.example/",
        "https://@client.example/",
        "https://client.example/hook#part",
        "https://client.example:/",
        "https://client.example:0/",
        "https://client.example:99999/",
        "https://client.example:http/",
        "https://münchen.example/",
        "https://client.example/a b",
        "https://client.example/\r\nX-Evil: 1",
        "https://client.example\\@evil.example/",
        "https://[::1",
        "https://[fe80::1%25eth0]/",
        "https://[1.2.3.4]/",
        "https://client..example/",
        "https://-client.example/",
        f"https://{'a' * 64}.example/",
        # the same address in other clothes
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.0.0.1/",
        "http://0177.0.0.1/",
        "http://127.0.0.1./",
        "http://127.0.0.1.2/",
        "http://256.0.0.1/",
        "http://1.2.3.0x/",
    ],
)
def test_a_url_that_can_not_be_called_is_refused(url: str) -> None:
    with pytest.raises(BadRequest, match="can't be called"):
        check_webhook_url(url, MOST)


def test_a_url_has_a_limit() -> None:
    url = f"https://client.example/{'x' * MOST}"
    with pytest.raises(BadRequest, match="webhook_url_length_max"):
        check_webhook_url(url, MOST)
    assert check_webhook_url(url[:MOST], MOST)


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
ASKED = ("webhook", "progressReports", "statusReports", "poll", "pollReplyCancelsWebhook", "lang", "reply", "mine")


@given(st.dictionaries(st.sampled_from(ASKED) | st.text(), json | st.just(URL), max_size=5))
def test_whatever_comes_is_understood_or_refused(metadata: dict[str, Any]) -> None:
    try:
        asked = parse_metadata(metadata, MOST)
    except BadRequest as error:
        assert error.field is not None and error.field.startswith("metadata.")
        return
    if asked.webhook is not None:
        assert msgspec.json.decode(encode_webhook(asked.webhook))["url"] == metadata["webhook"]
