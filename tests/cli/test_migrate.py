"""`datp migrate`, as an operator meets it."""

from pathlib import Path

import pytest
from conftest import Datp

from datp.archive.migrate import migrations

ALL = [{"version": one.version, "name": one.name} for one in migrations("sqlite")]
URL = "sqlite:///archive.sqlite"


def test_tables_are_made_once_and_listed(datp_without_store: Datp, elsewhere: Path) -> None:
    before = datp_without_store("migrate", "status", "--database-url", URL)
    assert before.code == 5 and "not yet" in before.out
    assert before.sentence == "The database lacks a migration; apply it with: datp migrate up"
    assert datp_without_store("migrate", "up", "--database-url", URL, "--json").json == ALL
    assert datp_without_store("migrate", "up", "--database-url", URL, "--json").json == []
    assert "already" in datp_without_store("migrate", "up", "--database-url", URL).out
    listed = datp_without_store("migrate", "status", "--database-url", URL, "--json").json
    assert [one["version"] for one in listed] == [one["version"] for one in ALL]
    assert all(one["appliedAt"] and one["isKnown"] for one in listed)


def test_they_are_taken_back_only_when_that_is_meant(datp_without_store: Datp, elsewhere: Path) -> None:
    datp_without_store("migrate", "up", "--database-url", URL)
    unsaid = datp_without_store("migrate", "down", "--database-url", URL)
    assert unsaid.code == 2 and "--to" in unsaid.sentence
    unmeant = datp_without_store("migrate", "down", "--to", 1, "--database-url", URL)
    assert unmeant.code == 2 and "2 (definitions)" in unmeant.sentence and "--yes" in unmeant.sentence
    back = datp_without_store("migrate", "down", "--to", 1, "--yes", "--database-url", URL, "--json").json
    assert back == ALL[:0:-1]
    assert "nothing to take back" in datp_without_store("migrate", "down", "--to", 1, "--database-url", URL).out
    assert (
        "Took back 1 (archive)" in datp_without_store("migrate", "down", "--to", 0, "--yes", "--database-url", URL).out
    )


def test_the_environment_names_the_database(
    datp_without_store: Datp, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = datp_without_store("migrate", "up")
    assert unknown.code == 2 and "--database-url or DATP_DATABASE_URL" in unknown.sentence
    (elsewhere / "secret").write_text(URL + "\n")
    monkeypatch.setenv("DATP_DATABASE_URL_FILE", "secret")
    assert datp_without_store("migrate", "up", "--json").json == ALL
    assert (elsewhere / "archive.sqlite").exists()


@pytest.mark.parametrize(
    ("url", "code", "says"),
    [
        ("archive.sqlite", 2, "is not the URL of a database"),
        ("sqlite:///nowhere/archive.sqlite", 5, "There is no directory"),
        ("postgresql://datp:secret@127.0.0.1:9/datp", 5, "can't be reached"),
        ("mariadb://datp:secret@127.0.0.1:9/datp", 5, "can't be reached"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence_without_the_password(
    datp_without_store: Datp, elsewhere: Path, url: str, code: int, says: str
) -> None:
    for command in ("up", "status"):
        said = datp_without_store("migrate", command, "--database-url", url)
        assert said.code == code and says in said.sentence, said
        assert "secret" not in said.error + said.out


def test_a_database_of_a_newer_version_is_said_to_be_one(datp_without_store: Datp, elsewhere: Path) -> None:
    import sqlite3

    datp_without_store("migrate", "up", "--database-url", URL)
    with sqlite3.connect("archive.sqlite") as connection:
        connection.execute("INSERT INTO datp_schema VALUES (99, 'later', 0)")
    connection.close()
    said = datp_without_store("migrate", "status", "--database-url", URL)
    assert said.code == 5 and "unknown to this version" in said.out and "newer version" in said.sentence
    assert "migration 99" in datp_without_store("migrate", "up", "--database-url", URL).sentence
