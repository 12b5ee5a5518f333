"""SQL is run once, whatever happens to the node: its outcome is committed together with what it did."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shipped_types import REGISTRY
from test_examples import run_example

from datp.errors import BadDefinition, BadRequest, DatabaseUnreachable
from datp.steps.library.sql_targets import CREATE_TABLE, RESULT_TABLE, has_several, names_in, target_for
from datp.testing import Lab

SQL_RUN = REGISTRY.get("sql/run")
assert SQL_RUN is not None

TAKE = {
    "database": "shop",
    "statement": "UPDATE stock SET pieces = pieces - :n WHERE sku = :sku AND pieces >= :n",
    "parameters": {"n": "${input.n}", "sku": "${input.sku}"},
    "require": "result.changed == `1`",
}


def sql(url: str, *statements: str) -> list[list[dict[str, Any]]]:
    """What the statements find, done in a transaction of their own."""

    async def work() -> list[list[dict[str, Any]]]:
        async with target_for(url).transaction(10_000) as opened:
            return [(await opened.run(statement, {}, 1_000)).rows for statement in statements]

    return asyncio.run(work())


@pytest.fixture
def shop(datp: Lab, kind: str, empty_url: str) -> str:
    """A database with a stock, and the table for outcomes; the lab knows it as `shop`."""
    if kind == "sqlite":
        Path(empty_url.removeprefix("sqlite:///")).touch()
    dialect = kind.removesuffix("15")
    sql(
        empty_url,
        CREATE_TABLE[dialect],
        "CREATE TABLE stock (sku varchar(20) NOT NULL PRIMARY KEY, pieces bigint NOT NULL)",
        "INSERT INTO stock (sku, pieces) VALUES ('pen', 5), ('ink', 1), ('cap', 0)",
    )
    datp.credential("shop", "database", url=empty_url)
    return empty_url


def pieces(url: str, sku: str = "pen") -> int:
    [[row]] = sql(url, f"SELECT pieces FROM stock WHERE sku = '{sku}'")
    return int(row["pieces"])


def outcomes(url: str) -> list[str]:
    [rows] = sql(url, f"SELECT outcome FROM {RESULT_TABLE} ORDER BY idempotency_key")
    return [row["outcome"] for row in rows]


def run(datp: Lab, given: Any = None, **definition: Any) -> Any:
    datp.pipeline("t", {"step": "sql/run", "with": {"database": "shop", **definition}})
    return datp.run("t", given)


def test_the_examples_do_what_they_say(datp: Lab, shop: str) -> None:
    assert SQL_RUN is not None
    for example in SQL_RUN.examples:
        run_example(datp, SQL_RUN, example)


# ── once ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("times", [1, 3])
def test_after_a_crash_the_outcome_is_found_and_nothing_is_done_again(datp: Lab, shop: str, times: int) -> None:
    datp.crash_after("sql/run", times=times)
    result = run(datp, {"sku": "pen", "n": 2}, **TAKE)
    assert (result.status, result.output) == ("success", {"changed": 1, "rows": []})
    assert pieces(shop) == 3
    assert outcomes(shop) == ['{"changed":1,"rows":[]}']


def test_without_once_a_crash_does_it_again(datp: Lab, shop: str) -> None:
    datp.crash_after("sql/run")
    run(datp, {"sku": "pen", "n": 2}, **TAKE, once=False)
    assert (pieces(shop), outcomes(shop)) == (1, [])


def test_every_transaction_has_its_own_outcome(datp: Lab, shop: str) -> None:
    for _ in range(2):
        assert run(datp, {"sku": "pen", "n": 1}, **TAKE).status == "success"
    assert (pieces(shop), len(outcomes(shop))) == (3, 2)


def test_two_that_run_at_once_do_it_once(shop: str) -> None:
    async def one(number: int) -> str:
        async with target_for(shop).transaction(10_000) as work:
            before = await work.claim("s-1")
            if before is not None:
                return before
            await work.run("UPDATE stock SET pieces = pieces - 1 WHERE sku = 'pen'", {}, 10)
            await work.keep("s-1", str(number))
            return str(number)

    async def both() -> list[str]:
        return list(await asyncio.gather(*(one(number) for number in range(4))))

    assert len(set(asyncio.run(both()))) == 1
    assert pieces(shop) == 4


def test_what_fails_commits_nothing_and_may_be_done_later(datp: Lab, shop: str) -> None:
    failed = run(datp, {"sku": "pen", "n": 9}, **TAKE)
    assert (failed.status, failed.note) == ("failed", "it does not hold that result.changed == `1`")
    assert failed.output["result"] == {"changed": 0, "rows": []}
    both = [
        "UPDATE stock SET pieces = pieces - 1 WHERE sku = 'pen'",
        "INSERT INTO stock (sku, pieces) VALUES ('ink', 7)",
    ]
    broken = run(datp, statement=both)
    assert (broken.status, broken.note.startswith("the database refuses it: ")) == ("failed", True)
    assert (pieces(shop), outcomes(shop)) == (5, [])


def test_an_undo_puts_back_what_was_taken_and_once(datp: Lab, shop: str) -> None:
    undo = {
        "step": "sql/run",
        "with": {
            "database": "shop",
            "statement": "UPDATE stock SET pieces = pieces + :n WHERE sku = :sku",
            "parameters": {"n": "${input.n}", "sku": "${input.sku}"},
        },
    }
    datp.pipeline(
        "t",
        {"step": "sql/run", "with": TAKE, "undo": undo},
        {"step": "util/fixed-reply", "with": {"status": "failed"}},
    )
    datp.crash_after("sql/run")
    assert datp.run("t", {"sku": "pen", "n": 2}).status == "failed"
    assert (pieces(shop), len(outcomes(shop))) == (5, 2)


# ── what goes in and what comes out ──────────────────────────────────────────────────────────────────────────────


def test_values_are_never_read_as_sql(datp: Lab, shop: str) -> None:
    evil = "'; DROP TABLE stock; -- \\ %s :n \" `"
    result = run(
        datp,
        {"v": evil},
        statement="SELECT CAST(:v AS char(60)) AS v, 'it''s :not %s' AS w, 100 % 7 AS m",
        parameters={"v": "${input.v}"},
        once=False,
    )
    [row] = result.output["rows"]
    assert (row["v"].rstrip(), row["w"], row["m"]) == (evil, "it's :not %s", 2)


def test_several_statements_have_a_result_each(datp: Lab, shop: str) -> None:
    result = run(
        datp,
        {"n": 2},
        statement=[
            "UPDATE stock SET pieces = pieces - :n WHERE sku = 'pen'",
            "SELECT pieces FROM stock WHERE sku = 'pen'",
        ],
        parameters={"n": "${input.n}"},
        output={"left": "${result[1].rows[0].pieces}", "changed": "${result[0].changed}"},
    )
    assert result.output == {"left": 3, "changed": 1}
    assert outcomes(shop) == ['{"changed":1,"left":3}']


def test_what_json_has_no_word_for_comes_as_text(datp: Lab, shop: str, kind: str) -> None:
    statement = "SELECT CAST(12.50 AS decimal(10, 2)) AS exact, CAST('2026-11-19' AS date) AS day, NULL AS missing"
    result = run(datp, statement=statement, once=False)
    [row] = result.output["rows"]
    if kind != "sqlite":  # which has neither decimals nor dates
        assert row == {"exact": "12.50", "day": "2026-11-19", "missing": None}
    assert row["missing"] is None


def test_too_much_is_refused(datp: Lab, shop: str) -> None:
    assert (
        run(datp, statement="SELECT sku FROM stock", rowsMax=2).note == "the statement finds more than rowsMax (2) rows"
    )
    joined = "SELECT REPEAT('x', 300000) AS x" if "sqlite" not in shop else "SELECT hex(zeroblob(150000)) AS x"
    assert "output_bytes_max" in run(datp, statement=joined).note
    assert outcomes(shop) == []


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_database_without_the_table_is_told_how_to_have_it(datp: Lab, shop: str) -> None:
    sql(shop, f"DROP TABLE {RESULT_TABLE}")
    result = run(datp, statement="SELECT 1 AS one")
    assert (result.status, f"Make it with: CREATE TABLE {RESULT_TABLE}" in result.note) == ("failed", True)
    assert run(datp, statement="SELECT 1 AS one", once=False).status == "success"


SLOW = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS c FROM n",
    "postgresql": "SELECT pg_sleep(30)",
    "mariadb": "SELECT SLEEP(30)",
}


def test_a_statement_that_takes_too_long_is_stopped_and_tried_again(datp: Lab, shop: str, kind: str) -> None:
    result = run(datp, statement=SLOW[kind.removesuffix("15")], timeout="200ms", retries=2, once=False)
    assert (result.status, result.step("s1").attempts) == ("internal-error", 3)
    assert "the database" in result.note


def test_a_database_that_is_away_is_tried_again(datp: Lab, shop: str, kind: str) -> None:
    away = {
        "sqlite": "sqlite:////nowhere/at/all.sqlite",
        "postgresql": "postgresql://datp:opensesame@127.0.0.1:1/x",
        "mariadb": "mariadb://root:opensesame@127.0.0.1:1/x",
    }[kind.removesuffix("15")]
    datp.credential("shop", "database", url=away)
    result = run(datp, statement="SELECT 1 AS one", retries=1)
    assert result.status == ("failed" if kind == "sqlite" else "internal-error")
    assert "opensesame" not in result.note + repr(result.flow)


def test_a_lock_that_somebody_holds_is_waited_for_and_tried_again(shop: str) -> None:
    async def both() -> None:
        target, other = target_for(shop), target_for(shop)
        async with target.transaction(10_000) as work:
            await work.claim("s-1")
            with pytest.raises(DatabaseUnreachable):
                async with other.transaction(300) as late:
                    await late.claim("s-1")

    asyncio.run(both())


def test_a_credential_must_be_of_a_database(datp: Lab) -> None:
    datp.credential("shop", "bearer", token="a-token")
    assert run(datp, statement="SELECT 1").note == "the credential shop is of kind bearer, and not of a database"
    datp.credential("shop", "database", url="oracle://x")
    assert "is not of a database" in run(datp, statement="SELECT 1").note
    for url in ("nonsense", "mariadb://[", "mariadb://h:port/"):
        with pytest.raises(BadRequest):
            target_for(url)


@pytest.mark.parametrize(
    ("definition", "says"),
    [
        ({"statement": "COMMIT"}, "begin with one of"),
        ({"statement": "CREATE TABLE x (y int)"}, "begin with one of"),
        ({"statement": ""}, "begin with one of"),
        ({"statement": []}, "there is none"),
        ({"statement": "SELECT 1; COMMIT"}, "written as a list"),
        ({"statement": "SELECT :a, :b", "parameters": {"a": 1}}, "nothing is said of :b"),
        ({"statement": "SELECT 1", "require": "result."}, "require: "),
        ({"statement": "SELECT 1", "rowsMax": -1}, ">= 0"),
        ({"statement": "SELECT 1", "timeout": "x"}, "timeout"),
        ({"statement": "SELECT :a", "parameters": {"a": "${"}}, "parameters: "),
    ],
)
def test_a_definition_that_makes_no_sense_is_refused(datp: Lab, definition: Any, says: str) -> None:
    with pytest.raises(BadDefinition) as caught:
        datp.pipeline("t", {"step": "sql/run", "with": {"database": "shop", **definition}})
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "names", "several"),
    [
        ("SELECT :a, ':b', \":c\", `:d`, x::int, :a -- :e\n, :f /* :g; */", ["a", "f"], False),
        ("SELECT 'it''s; :x'; ", [], False),
        ("SELECT 1; SELECT 2", [], True),
        ("SELECT '12:30' , a:b, :_x1", ["_x1"], False),
    ],
)
def test_parameters_are_found_where_they_are_meant(statement: str, names: list[str], several: bool) -> None:
    assert (names_in(statement), has_several(statement)) == (names, several)


@given(st.text(alphabet="ab:;'\"`-/* \n%", max_size=40))
def test_any_statement_is_read_quickly(statement: str) -> None:
    names_in(statement)
    has_several(statement)
