"""The description in OpenAPI 3.1, made from the routes."""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final

import msgspec

from datp import __version__
from datp.api.http.problem import PROBLEM, Problem
from datp.api.http.routes import Answer, Call, Route, Words
from datp.errors import (
    BadJson,
    BadRequest,
    DatpError,
    Forbidden,
    StoreError,
    TooBusy,
    TooLarge,
    Unauthenticated,
    UnsupportedMedia,
)

REF: Final = "#/components/schemas/{name}"
WORDS: Final = {"path": "path", "query": "query", "headers": "header"}

_LINES = re.compile(r"\s*\n\s*")


def openapi(routes: Iterable[Route]) -> dict[str, Any]:
    """The description of these routes."""
    told = [route for route in routes if route.is_described]
    types_ = [kind for route in told for kind in (route.parameters.get("body"), route.reply) if kind not in (None, Any)]
    schemas, components = msgspec.json.schema_components([Problem, *types_], ref_template=REF)
    schema_of = dict(zip(map(repr, types_), schemas[1:], strict=True))
    paths: dict[str, Any] = {}
    for route in told:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "DATP",
            "version": __version__,
            "description": "Transactions: start them, wait for them, and be told what became of them.",
        },
        "paths": paths,
        "components": {
            "schemas": {name: _tidy(schema) for name, schema in components.items()},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key: datp_…"}},
        },
    }


def openapi_route(routes: Iterable[Route]) -> Route:
    """The route that tells it."""
    document = msgspec.json.encode(openapi(routes))

    async def describe(call: Call) -> Answer[dict[str, Any]]:
        """Tell what there is, in OpenAPI 3.1."""
        return Answer(document)

    return Route(method="GET", path="/openapi.json", handler=describe, role=None, tag="description", is_described=False)


def usual_refusals(route: Route) -> tuple[type[DatpError], ...]:
    """What may go wrong with a route because of what it takes."""
    refusals: list[type[DatpError]] = []
    if route.role is not None:
        refusals += [Unauthenticated, Forbidden, TooBusy, StoreError]
    if route.parameters.keys() & WORDS.keys():
        refusals += [BadRequest]
    if "body" in route.parameters:
        refusals += [BadJson, UnsupportedMedia, TooLarge, BadRequest]
    return tuple(dict.fromkeys(refusals))


def _operation(route: Route, schema_of: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.tag],
        "summary": route.summary,
        "parameters": [
            parameter
            for name, where in WORDS.items()
            if name in route.parameters
            for parameter in _parameters(route.parameters[name], where)
        ],
        "responses": _responses(route, schema_of),
        "security": [] if route.role is None else [{"key": []}],
    }
    if route.description:
        operation["description"] = route.description
    if route.role is not None:
        operation["x-role"] = str(route.role)
    if "body" in route.parameters:
        schema = schema_of[repr(route.parameters["body"])]
        operation["requestBody"] = {
            "required": not route.has_optional_body,
            "content": {"application/json": {"schema": schema}},
        }
    return operation


def _parameters(kind: type[Words], where: str) -> list[dict[str, Any]]:
    parameters = []
    for field in msgspec.structs.fields(kind):
        [schema], _ = msgspec.json.schema_components([field.type], ref_template=REF)
        schema = _not_null(schema)
        described = {"description": schema.pop("description")} if "description" in schema else {}
        parameters.append(
            {"name": field.encode_name, "in": where, "required": field.required, **described, "schema": schema}
        )
    return parameters


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """What is not said is left out, and never null."""
    if "anyOf" not in schema:
        return dict(schema)
    [kind] = [one for one in schema["anyOf"] if one != {"type": "null"}]
    return {**{name: value for name, value in schema.items() if name not in ("anyOf", "default")}, **kind}


def _responses(route: Route, schema_of: dict[str, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, says in route.statuses.items():
        schema = schema_of.get(repr(route.reply), {})
        media_type = route.media_type.decode().partition(";")[0]
        content = {} if status == 204 else {"content": {media_type: {"schema": schema}}}
        responses[str(status)] = {"description": says, **content}
    problem = {PROBLEM.decode(): {"schema": {"$ref": REF.format(name="Problem")}}}
    by_status: dict[int, list[type[DatpError]]] = {}
    for error in dict.fromkeys((*usual_refusals(route), *route.refusals)):
        by_status.setdefault(error.http_status, []).append(error)
    for status, errors in sorted(by_status.items()):
        says = "; ".join(f"`{error.code}`: {_first_line(error)}" for error in errors)
        if str(status) not in responses:
            responses[str(status)] = {"description": says or HTTPStatus(status).phrase, "content": problem}
    return responses


def _first_line(error: type[DatpError]) -> str:
    return (error.__doc__ or "").partition("\n")[0]


def _tidy(schema: Any) -> Any:
    """Descriptions on one line each."""
    if isinstance(schema, dict):
        return {
            name: _LINES.sub(" ", value) if name == "description" and isinstance(value, str) else _tidy(value)
            for name, value in schema.items()
        }
    if isinstance(schema, list):
        return [_tidy(one) for one in schema]
    return schema
