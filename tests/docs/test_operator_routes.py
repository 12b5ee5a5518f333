"""The page of operator routes tells what there is: every route of the description, every command, every replacement."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main

from datp.api.http.all_routes import api_routes
from datp.api.http.api import Api
from datp.api.http.openapi import openapi
from datp.cli.main import app
from datp.settings import Settings

PAGE: Final = Path(__file__).parents[2] / "docs/reference/operator-routes.md"
THERE: Final = Path(__file__).with_name("operator_routes.txt")
INSTEAD: Final = re.compile(r"comes with (MONDAT|metrics)|gone")
PREFIX: Final = "/v1/admin/"
CHANGES_NOTHING: Final = {"/v1/admin/check-pipeline", "/v1/admin/pipelines/{pipeline}/test"}


def rows(section: str) -> Iterator[list[str]]:
    """The cells of each row of a section's table, without its head."""
    text = PAGE.read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    for line in lines[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


ROUTES: Final = list(rows("The routes"))
REPLACED: Final = list(rows("The operator routes of the program that DATP replaces"))


@pytest.fixture(scope="module")
def described() -> dict[str, str]:
    """Each operator route of the description, with its role."""
    document: dict[str, Any] = openapi(api_routes(Api(Settings(store_url="redis://nobody"))))
    return {
        f"{method.upper()} {path}": operation["x-role"]
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if path.startswith(PREFIX)
    }


def commands() -> set[str]:
    """Every command, as it is typed."""

    def walk(command: Any, name: str) -> Iterator[str]:
        yield name
        for inner, one in getattr(command, "commands", {}).items():
            yield from walk(one, f"{name} {inner}")

    return set(walk(typer.main.get_command(app), "datp"))


def test_every_operator_route_is_told_with_its_role_and_no_other(described: dict[str, str]) -> None:
    assert {row[0]: row[1] for row in ROUTES} == described
    assert len(ROUTES) == len(described), "a route is told twice"


def test_every_route_has_its_command() -> None:
    known = commands()
    assert [row[2] for row in ROUTES if row[2].strip("`") not in known] == []


def test_every_route_of_the_program_before_has_its_replacement(described: dict[str, str]) -> None:
    there = [line for line in THERE.read_text().splitlines() if line]
    assert [row[0] for row in REPLACED] == there
    for route, instead, why in REPLACED:
        assert instead in described or INSTEAD.fullmatch(instead), f"{route}: there is no {instead}"
        assert instead != "gone" or why, f"{route} is gone, but why?"


def test_routes_that_act_take_a_reason() -> None:
    document: dict[str, Any] = openapi(api_routes(Api(Settings(store_url="redis://nobody"))))
    schemas = document["components"]["schemas"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if not path.startswith(PREFIX) or method == "get" or path in CHANGES_NOTHING:
                continue
            if method == "delete":
                assert "reason" in {one["name"] for one in operation["parameters"] if one.get("required")}, path
                continue
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            name = schema["$ref"].rpartition("/")[2]
            assert "reason" in schemas[name]["required"], f"{method} {path} asks for no reason"
