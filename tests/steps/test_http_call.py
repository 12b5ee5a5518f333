"""Calls of other people's APIs: what is sent, what the answer means, what is tried again, and what never leaks."""

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from back_end import BackEnd
from shipped_types import REGISTRY
from test_examples import run_example

from datp.errors import BadDefinition
from datp.settings import Settings
from datp.testing import Lab, LabServer

LOOPBACK = Settings(partitions=1, outbound_networks="127.0.0.0/8", output_bytes_max=20_000)

HTTP_CALL = REGISTRY.get("http/call")
assert HTTP_CALL is not None


@pytest.fixture
def back_end() -> Iterator[BackEnd]:
    with BackEnd().running() as running:
        yield running


@pytest.fixture
def lab(datp_server: LabServer) -> Iterator[Lab]:
    with Lab(datp_server, settings=LOOPBACK) as opened:
        yield opened


@pytest.fixture
def call(lab: Lab, back_end: BackEnd) -> Callable[..., Any]:
    """Runs one call; a path is one of the back end."""

    def run(path: str = "/items/pen", given: Any = None, **definition: Any) -> Any:
        url = path if "://" in path or path.startswith("${") else f"{back_end.url}{path}"
        lab.pipeline("t", {"step": "http/call", "with": {"url": url, **definition}})
        return lab.run("t", given)

    return run


@pytest.mark.parametrize("example", HTTP_CALL.examples, ids=lambda example: example.says)
def test_an_example_does_what_it_says(lab: Lab, back_end: BackEnd, example: Any) -> None:
    assert HTTP_CALL is not None
    lab.credential("shop", "bearer", token="shop-token")
    url = example.definition["url"].replace("https://shop.example", back_end.url)
    here = msgspec.structs.replace(example, definition={**example.definition, "url": url})
    run_example(lab, HTTP_CALL, here)
    if example.definition.get("credential"):
        [asked] = back_end.asked
        assert asked.headers["Authorization"] == "Bearer shop-token"
        assert json.loads(asked.body)["reference"].startswith("tx-")


# ── what is sent ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_values_are_written_into_a_url_as_it_needs_them(call: Any, back_end: BackEnd) -> None:
    given = {"id": "a/b c?d=e#ä", "n": 7, "list": [1, "x&y"], "flag": True}
    query = {
        "q": "${input.id}",
        "n": "${input.n}",
        "each": "${input.list}",
        "none": "${input.no}",
        "flag": "a ${input.flag}",
    }
    call("/items/${input.id}/${input.n}", given, query=query)
    [asked] = back_end.asked
    assert asked.path.partition("?")[0] == "/items/a%2Fb%20c%3Fd%3De%23%C3%A4/7"
    assert asked.path.partition("?")[2] == "each=1&each=x%26y&flag=a+true&n=7&q=a%2Fb+c%3Fd%3De%23%C3%A4"


@pytest.mark.parametrize(
    ("path", "given", "says"),
    [
        ("/items/${input.id}", {}, "the URL needs input.id, and there is nothing there"),
        ("/items/${input.id}", {"id": ""}, "the URL needs input.id"),
        ("/items/${input.id}/x", {"id": ".."}, "must not go upwards"),
        ("${input.url}", {"url": "ftp://a.example/"}, "begins with http:// or https://"),
        ("${input.url}", {"url": "http://user:secret@a.example/"}, "must not hold a user or a password"),
        ("${input.url}", {"url": "http://[::1"}, "begins with http://"),
        ("${input.url}", {"url": {"a": 1}}, "begins with http://"),
        ("/x", {"id": 1}, None),
    ],
)
def test_a_url_that_can_not_be_called_fails_the_step(call: Any, path: str, given: Any, says: str | None) -> None:
    result = call(path, given)
    assert result.status == "failed"
    if says:
        assert says in result.note
        assert result.output == {"error": result.note}


def test_headers_and_bodies_are_made_of_the_input(call: Any, back_end: BackEnd) -> None:
    given = {"name": "Ada", "items": [1, 2], "big": 2**70}
    headers = {"X-Name": "${input.name}", "X-None": "${input.no}", "x-n": "${length(input.items)}"}
    call("/orders", given, method="POST", headers=headers, body={"who": "${input.name}", "all": "${input}"})
    call("/orders", given, method="PUT", bodyType="text", body="Hello ${input.name}", idempotencyHeader="")
    call("/orders", given, method="PATCH", bodyType="form", body={"a b": "${input.items}", "c": "ä&"})
    call("/orders", given, method="DELETE")
    posted, put, patched, deleted = back_end.asked
    assert json.loads(posted.body) == {"who": "Ada", "all": given}
    assert posted.headers["Content-Type"] == "application/json"
    assert (posted.headers["X-Name"], posted.headers["x-n"], "X-None" in posted.headers) == ("Ada", "2", False)
    assert posted.headers["Idempotency-Key"].startswith("s-")
    assert posted.headers["User-Agent"].startswith("datp/")
    assert (put.body, "Idempotency-Key" in put.headers) == ("Hello Ada", False)
    assert patched.body == "a+b=1&a+b=2&c=%C3%A4%26"
    assert (deleted.method, deleted.body) == ("DELETE", "")


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "\x00", "x" * 70_000])
def test_a_header_can_not_be_broken_out_of(call: Any, back_end: BackEnd, value: str) -> None:
    result = call("/orders", {"v": value}, headers={"X-V": "${input.v}"})
    assert (result.status, "the header X-V can't carry" in result.note) == ("failed", True)
    assert back_end.asked == []


# ── what the answer means ────────────────────────────────────────────────────────────────────────────────────────


def test_an_answer_is_the_output_as_it_is_understood(call: Any) -> None:
    assert call("/items/pen").output == {
        "classification": "ok",
        "subClassification": None,
        "status": 200,
        "body": {"sku": "pen", "price": "1.20"},
    }
    assert call(
        "/items/pen", output={"price": "${response.body.price}", "of": "${input.n}"}, given={"n": 1}
    ).output == {
        "price": "1.20",
        "of": 1,
    }
    assert call("/items/pen", output='${response.headers."content-type"}').output.startswith("application/json")


@pytest.mark.parametrize("after", ["failed", "aborted", "continue"])
def test_an_error_ends_the_step_as_it_says(call: Any, after: str) -> None:
    result = call("/items/nothing", onError=after)
    assert result.status == {"continue": "success"}.get(after, after)
    assert (result.output["classification"], result.output["status"]) == ("error", 404)
    assert result.output["body"] == "no such item"
    assert result.note == ("" if after == "continue" else "the answer was 404")


def test_a_timeout_is_offline_with_status_599(call: Any) -> None:
    result = call("/hangs", timeout="100ms", onOffline="continue")
    assert (result.status, result.output["classification"], result.output["status"]) == ("success", "offline", 599)
    assert result.note == "there was no answer within 0.1 s"
    assert call("/hangs", timeout="100ms").status == "failed"
    said = {"type": "timeout", "classification": "custom", "subClassification": "busy"}
    assert call("/hangs", timeout="100ms", classify=[said]).output["subClassification"] == "busy"


def test_a_connection_that_is_refused_or_cut_is_offline(call: Any) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}/", "/drops"):
        result = call(url)
        assert (result.status, result.output["classification"]) == ("failed", "offline")
        assert "there is no connection" in result.note


def test_a_host_that_does_not_exist_is_an_error_404(call: Any) -> None:
    result = call("http://no-such-host.invalid/", onError="continue", timeout="30s")
    assert (result.output["classification"], result.output["status"]) == ("error", 404)


def test_a_path_that_does_not_exist_is_an_error_404(call: Any) -> None:
    assert call("/nowhere", onError="continue").output["status"] == 404


def test_redirects_are_not_followed(call: Any, back_end: BackEnd) -> None:
    assert call("/elsewhere").output["status"] == 302
    assert len(back_end.asked) == 1


@pytest.mark.parametrize(
    ("body", "kind", "is_understood_as"),
    [
        ('{"a": [1]}', "application/json", {"a": [1]}),
        ('{"a": 1}', "application/problem+json; charset=utf-8", {"a": 1}),
        ('{"a": 1}', "text/plain", '{"a": 1}'),
        ("{broken", "application/json", "{broken"),
        ("", "application/json", None),
        ("ä\x00", "text/plain", "ä\x00"),
    ],
)
def test_an_answer_of_any_form_is_an_output(
    call: Any, back_end: BackEnd, body: str, kind: str, is_understood_as: Any
) -> None:
    from aiohttp import web

    back_end.answers.append(web.Response(body=body.encode(), headers={"Content-Type": kind}))
    assert call("/any").output["body"] == is_understood_as


def test_an_answer_that_is_too_large_or_too_deep_fails_the_step(call: Any, back_end: BackEnd) -> None:
    assert "output_bytes_max" in call("/large?bytes=20001").note
    assert call("/large?bytes=19000").status == "success"
    back_end.says(200, "[" * 200 + "]" * 200)
    back_end.answers[0].content_type = "application/json"
    assert call("/deep").note == "the answer is nested too deep"


# ── trying again ─────────────────────────────────────────────────────────────────────────────────────────────────

QUICK = {"firstMs": 1_000, "factor": 2.0, "jitter": 0.0}


def test_what_is_offline_is_tried_again_and_sleeps_between(call: Any, back_end: BackEnd, lab: Lab) -> None:
    began = lab.now_ms
    back_end.says(503)
    back_end.says(503)
    result = call("/items/pen", retries=3, retryOn=["503"], backoff=QUICK)
    assert (result.status, result.output["status"], result.step("s1").attempts) == ("success", 200, 3)
    assert lab.now_ms - began == 3_000
    assert [asked.path for asked in back_end.asked] == ["/items/pen"] * 3


def test_a_request_has_one_idempotency_key_for_all_its_tries(call: Any, back_end: BackEnd) -> None:
    back_end.says(500)
    call("/orders", method="POST", body={}, retries=1, retryOn=["error"], backoff=QUICK)
    keys = {asked.headers["Idempotency-Key"] for asked in back_end.asked}
    assert (len(back_end.asked), len(keys)) == (2, 1)


def test_in_the_end_it_is_what_the_last_answer_means(call: Any, back_end: BackEnd) -> None:
    for _ in range(3):
        back_end.says(500, {"why": "broken"})
    result = call("/items/pen", retries=2, retryOn=["5XX"], backoff=QUICK)
    assert (result.status, result.output["status"], len(back_end.asked)) == ("failed", 500, 3)


def test_what_is_not_named_is_not_tried_again(call: Any, back_end: BackEnd) -> None:
    call("/items/nothing", retries=5, backoff=QUICK)
    assert len(back_end.asked) == 1


def test_a_server_may_ask_for_patience(call: Any, back_end: BackEnd, lab: Lab) -> None:
    began = lab.now_ms
    back_end.says(429, None, Retry_After="120")
    assert call("/items/pen", retries=1, retryOn=["429"], backoff=QUICK).status == "success"
    assert lab.now_ms - began == 120_000


# ── what may not be called ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254", "10.0.0.1"])
def test_addresses_inside_are_not_called(datp_server: LabServer, back_end: BackEnd, host: str) -> None:
    with Lab(datp_server, settings=replace(LOOPBACK, outbound_networks="")) as lab:
        lab.pipeline("t", {"step": "http/call", "with": {"url": "${input}", "retries": 3, "onError": "continue"}})
        result = lab.run("t", f"http://{host}:{back_end.url.rpartition(':')[2]}/items/pen")
    assert (result.status, "is not a public address" in result.note) == ("failed", True)
    assert back_end.asked == []


# ── credentials ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "values", "header", "value"),
    [
        ("bearer", {"token": "t0k"}, "Authorization", "Bearer t0k"),
        ("basic", {"user": "ada", "password": "pässword"}, "Authorization", "Basic YWRhOnDDpHNzd29yZA=="),
        ("header", {"name": "X-Api-Key", "value": "k3y"}, "X-Api-Key", "k3y"),
    ],
)
def test_a_credential_is_shown(
    call: Any, lab: Lab, back_end: BackEnd, kind: str, values: Any, header: str, value: str
) -> None:
    lab.credential("c", kind, **values)
    call("/items/pen", credential="c")
    assert back_end.asked[0].headers[header] == value


def flow_values(result: Any) -> list[Any]:
    return [entry[side] or b"" for entry in result.flow for side in ("input", "output")]


def test_a_credential_that_comes_back_is_hidden(call: Any, lab: Lab) -> None:
    lab.credential("c", "bearer", token="secret-token-1")
    result = call("/repeats", credential="c", output={"all": "${response}"})
    assert "***" in json.dumps(result.output)
    assert "secret-token-1" not in repr([result.output, result.note, *map(bytes, flow_values(result))])


def test_a_credential_that_is_missing_or_of_no_use_fails_the_step(call: Any, lab: Lab, back_end: BackEnd) -> None:
    assert "There is no credential c" in call("/items/pen", credential="c").note
    lab.credential("c", "secret", text="x")
    assert call("/items/pen", credential="c").note == "the credential c is of kind secret, which no request can show"
    assert back_end.asked == []


@pytest.mark.parametrize("url", ["${input.url}", "https://${input.host}/x", "https://a.example${input.path}"])
def test_a_credential_is_only_shown_to_a_host_that_the_definition_names(lab: Lab, url: str) -> None:
    lab.pipeline("fine", {"step": "http/call", "with": {"url": "https://a.example/${input.path}", "credential": "c"}})
    with pytest.raises(BadDefinition, match="must name its host itself"):
        lab.pipeline("t", {"step": "http/call", "with": {"url": url, "credential": "c"}})


# ── definitions ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("definition", "says"),
    [
        ({}, "missing required field `url`"),
        ({"url": ""}, "must begin with http"),
        ({"url": "file:///etc/passwd"}, "must begin with http"),
        ({"url": "http://"}, "must be a URL"),
        ({"url": "http://u:p@a.example/"}, "must not hold a user"),
        ({"url": "http://a.example/${"}, "must end with"),
        ({"url": "http://a.example/", "method": "get"}, "Invalid enum value"),
        ({"url": "http://a.example/", "method": "GET", "body": {}}, "a GET has no body"),
        ({"url": "http://a.example/", "method": "POST", "body": [1], "bodyType": "form"}, "form is an object"),
        ({"url": "http://a.example/", "headers": {"Host": "b"}}, "can be set"),
        ({"url": "http://a.example/", "headers": {"a b": "c"}}, "can be set"),
        ({"url": "http://a.example/", "headers": {"X": "${"}}, "must end with"),
        ({"url": "http://a.example/", "timeout": "soon"}, "timeout"),
        ({"url": "http://a.example/", "retries": -1}, ">= 0"),
        ({"url": "http://a.example/", "retryOn": ["sometimes"]}, "no classification and no status"),
        ({"url": "http://a.example/", "backoff": {"factor": 0}}, "factor"),
        ({"url": "http://a.example/", "classify": [{"type": "default", "classification": "offline"}]}, "offline"),
    ],
)
def test_a_definition_that_makes_no_sense_is_refused(lab: Lab, definition: Any, says: str) -> None:
    with pytest.raises(BadDefinition) as caught:
        lab.pipeline("t", {"step": "http/call", "with": definition})
    assert says in str(caught.value)
