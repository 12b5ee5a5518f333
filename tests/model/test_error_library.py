"""Registered errors: found by name and by code, in the client's language or else in English."""

import pytest

from datp.errors import BadDefinition
from datp.model.error_library import ErrorLibraries, ErrorLibrary, LibraryError, shipped_libraries

SOLD_OUT = LibraryError("SOLD_OUT", "shop-409-1", 409, "{{item}} is sold out: {{ item }}, {{shop}}.")


@pytest.fixture
def libraries() -> ErrorLibraries:
    return ErrorLibraries([*shipped_libraries(), ErrorLibrary("shop", "EN", [SOLD_OUT])])


@pytest.mark.parametrize(
    ("lang", "said"),
    [
        ("", "amount is required."),
        ("EN", "amount is required."),
        ("en-GB", "amount is required."),
        ("FIL", "Kailangan ang amount."),
        ("fil_PH", "Kailangan ang amount."),
        ("xx", "amount is required."),
    ],
)
def test_it_is_said_in_the_clients_language_or_in_english(libraries: ErrorLibraries, lang: str, said: str) -> None:
    told = libraries.tell("FIELD_IS_REQUIRED", {"field": "amount"}, lang)
    assert (told.error, told.code, told.http_status) == ("FIELD_IS_REQUIRED", "datp-400-0002", 400)
    assert (told.message, told.scope, told.data) == (said, "datp", {"field": "amount"})


def test_it_is_found_by_code_too(libraries: ErrorLibraries) -> None:
    found = libraries.find("datp-404-0001", "FIL")
    assert found is not None and (found[0].name, found[1]) == ("FIELD_NOT_FOUND", "datp")
    assert libraries.find("NO_SUCH") is None


def test_what_is_missing_in_a_language_is_said_in_english(libraries: ErrorLibraries) -> None:
    assert libraries.tell("SOLD_OUT", {"item": "tea", "shop": 1}, "FIL").message == "tea is sold out: tea, 1."
    assert libraries.tell("SOLD_OUT", {"item": "{{shop}}"}).message == "{{shop}} is sold out: {{shop}}, {{shop}}."


def test_one_that_nobody_registered_is_told_all_the_same(libraries: ErrorLibraries) -> None:
    told = libraries.tell("NO_SUCH", {"a": 1})
    assert (told.code, told.http_status, told.message, told.scope) == ("NO_SUCH", 400, "NO_SUCH (a: 1)", "")


def test_the_scope_that_was_registered_first_says_it(libraries: ErrorLibraries) -> None:
    libraries.register(ErrorLibrary("later", "EN", [LibraryError("SOLD_OUT", "later-1", 410, "no")]))
    assert libraries.tell("SOLD_OUT", {}).scope == "shop"


@pytest.mark.parametrize(
    ("library", "why"),
    [
        (ErrorLibrary("shop", "FIL", [LibraryError("SOLD_OUT", "other", 409, "x")]), "has code other"),
        (ErrorLibrary("new", "EN", [SOLD_OUT, SOLD_OUT]), "is there twice"),
        (ErrorLibrary("new", "EN", [LibraryError("A", "a", 200, "x")]), "no HTTP status of an error"),
    ],
)
def test_a_library_that_can_not_be_is_refused(libraries: ErrorLibraries, library: ErrorLibrary, why: str) -> None:
    with pytest.raises(BadDefinition, match=why):
        libraries.register(library)


def test_what_is_shipped_has_a_code_for_each_and_the_same_in_both_languages() -> None:
    english, filipino = shipped_libraries()
    assert (english.lang, filipino.lang) == ("EN", "FIL")
    assert len({error.code for error in english.errors}) == len(english.errors)
    assert [e.name for e in english.errors] == [e.name for e in filipino.errors]
    assert all(e.message != f.message for e, f in zip(english.errors, filipino.errors, strict=True))
