"""`datp doctor`, as an operator meets it; what it sees is in tests/archive/test_doctor.py."""

from pathlib import Path

import pytest
from conftest import Datp


def test_a_dev_has_no_trouble_and_is_told_what_its_levels_mean(datp: Datp) -> None:
    said = datp("doctor", "--invariants")
    assert said.code == 0, said.out
    assert "because" in said.out and "change  add a replica" in said.out
    assert "journal     nothing that was answered is lost, even with the store" in said.out
    assert "fine" not in datp("doctor", "--quiet").out
    document = datp("doctor", "--json").json
    assert document["troubles"] == 0 and set(document["levels"]) == {"hot", "snapshot", "journal"}
    assert {finding["level"] for finding in document["findings"]} == {"fine", "advice"}


def test_trouble_is_told_first_and_ends_with_1(datp: Datp, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATP_DATABASE_URL", "sqlite:///other.sqlite")
    said = datp("doctor")
    assert said.code == 1 and said.sentence == "1 thing is in trouble"
    assert said.out.startswith("trouble the archive: it lacks migration 1 (archive)\n")
    assert "        change  datp migrate up\n" in said.out


def test_a_store_that_does_not_answer_is_a_finding(datp_without_store: Datp) -> None:
    said = datp_without_store("doctor", "--store", "redis://127.0.0.1:9")
    assert said.code == 1 and "trouble the store: The store can't be reached" in said.out
