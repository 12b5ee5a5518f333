"""Schemas: what doesn't fit is told with its place, quickly, and nothing is fetched."""

import socket
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from made import json_values

from datp.errors import BadDefinition
from datp.model.limits import Limits
from datp.model.pipeline import parse_pipeline
from datp.model.schema import MISFITS_MAX, Misfit, Schema, told

ORDER = {
    "type": "object",
    "required": ["amount"],
    "properties": {
        "amount": {"type": "string", "pattern": "^[0-9]+[.][0-9]{2}$"},
        "due": {"type": "string", "format": "date"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
    },
    "$defs": {"line": {"type": "object", "properties": {"a/b": {"type": "integer"}}}},
}


def misfits(schema: Any, value: Any) -> list[Misfit]:
    return Schema(schema, "inputSchema").misfits(msgspec.json.encode(value))


def test_what_fits_has_no_misfits() -> None:
    assert misfits(ORDER, {"amount": "10.00", "due": "2026-11-19", "lines": [{"a/b": 1}]}) == []
    assert misfits(True, 5) == []


def test_every_misfit_is_told_with_its_place() -> None:
    found = misfits(ORDER, {"amount": "10", "due": "soon", "lines": [{}, {"a/b": "x"}]})
    assert {one.path for one in found} == {"/amount", "/due", "/lines/1/a~1b"}
    assert all(one.problem for one in found)


def test_the_sentence_names_the_first_and_counts_the_rest() -> None:
    found = misfits(ORDER, {"due": 5})
    assert told(found, "input") == (
        'the input doesn\'t fit its schema: "amount" is a required property (and 1 more)'
        if not found[0].path
        else 'the input doesn\'t fit its schema at /due: 5 is not of type "string" (and 1 more)'
    )
    assert told(found[:1], "output").startswith("the output doesn't fit its schema")


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "strin"}, "strin"),
        ({"pattern": "((("}, "regex"),
        ({"pattern": "(?=a)b"}, "regex"),
        ({"$ref": "#/nowhere"}, "/nowhere"),
        ({"$ref": "http://127.0.0.1:9/schema"}, "Retrieval is disabled"),
        ({"$ref": "file:///etc/hostname"}, "Retrieval is disabled"),
        ({"$schema": "http://example.com/mine"}, "meta-schema"),
    ],
)
def test_a_schema_that_can_not_be_used_is_refused(schema: Any, words: str) -> None:
    with pytest.raises(BadDefinition, match=words) as refused:
        parse_pipeline({"name": "p", "steps": [{"id": "a", "step": "x"}], "outputSchema": schema}, Limits())
    assert refused.value.field == "outputSchema"


def test_no_schema_reaches_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        with pytest.raises(BadDefinition):
            Schema({"$ref": f"http://127.0.0.1:{listener.getsockname()[1]}/x"}, "inputSchema")
        with pytest.raises(TimeoutError):
            listener.accept()


def test_a_long_list_of_misfits_is_cut() -> None:
    assert len(misfits({"items": {"type": "string"}}, [1] * 1_000)) == MISFITS_MAX


def test_a_large_document_is_refused_quickly() -> None:
    schema = Schema({"items": {"type": "string"}}, "inputSchema")
    document = msgspec.json.encode([1] * 120_000)
    began = time.perf_counter()
    assert schema.misfits(document) == [Misfit("/0", '1 is not of type "string"')]
    assert time.perf_counter() - began < 0.2


def test_a_pattern_takes_no_time_whatever_it_is_matched_with() -> None:
    schema = Schema({"pattern": "^(a+)+$"}, "inputSchema")
    began = time.perf_counter()
    assert schema.misfits(msgspec.json.encode("a" * 100_000 + "!"))
    assert time.perf_counter() - began < 0.5


@given(json_values)
def test_any_json_fits_or_is_told(value: Any) -> None:
    for one in misfits(ORDER, value):
        assert one.problem and not one.path.endswith("/")
