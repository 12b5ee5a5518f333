"""What a credential holds is checked, and hidden wherever it might be seen."""

import base64
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datp.errors import BadDefinition
from datp.model.credential import (
    HIDDEN,
    KINDS,
    Basic,
    Bearer,
    Credential,
    DatabaseAccess,
    Secret,
    decode_credential,
    encode_credential,
    parse_credential,
)

VALUES: dict[str, dict[str, Any]] = {
    "bearer": {"token": "tok-3n"},
    "basic": {"user": "ada", "password": "pass/wörd+1"},
    "header": {"name": "X-Api-Key", "value": "k3y-k3y"},
    "database": {"url": "mariadb://ada:pa%2Fss@host/db"},
    "secret": {"text": 'some "text"\n'},
}


def test_every_kind_says_what_it_is_for() -> None:
    assert set(VALUES) == set(KINDS)
    assert all(kind.fits for kind in KINDS.values())


@pytest.mark.parametrize("kind", KINDS)
def test_a_credential_comes_back_and_says_nothing_of_itself(kind: str) -> None:
    made = parse_credential(kind, VALUES[kind])
    assert decode_credential(encode_credential(made)) == made
    assert made.kind == kind
    assert repr(made) == str(made) == f"<credential: {kind}>"
    assert bool(made.headers()) == (kind in ("bearer", "basic", "header"))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("password", {"text": "s3cret"}),
        ("bearer", {}),
        ("bearer", {"token": ""}),
        ("bearer", {"token": "s3cret\r\nX-Evil: 1"}),
        ("basic", {"user": "a:b", "password": "s3cret"}),
        ("header", {"name": "a b", "value": "s3cret"}),
        ("header", {"name": "", "value": "s3cret"}),
        ("database", {"url": 7}),
        ("secret", {"text": "s3cret", "more": 1}),
        ("secret", {"text": "\ud800"}),
        ("secret", {"text": "s3cret" * 10_000}),
    ],
)
def test_what_is_no_credential_is_refused_without_being_shown(kind: str, values: Any) -> None:
    with pytest.raises(BadDefinition) as caught:
        parse_credential(kind, values)
    assert "s3cret" not in str(caught.value)


def forms(secret: str) -> list[str]:
    raw = secret.encode()
    return [
        secret,
        quote(secret, safe=""),
        msgspec.json.encode(secret).decode()[1:-1],
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode(),
    ]


@given(st.text(min_size=4, max_size=30, alphabet=st.characters(exclude_categories=["Cs"])))
def test_a_secret_is_hidden_in_each_form_in_which_it_travels(secret: str) -> None:
    made: Credential
    for made in (Bearer(secret), Basic("ada", secret), Secret(secret)):
        for form in forms(secret):
            assert form not in made.hide(f"<{form}>") or form in HIDDEN
    basic = Basic("ada", secret)
    assert basic.headers()["Authorization"].removeprefix("Basic ") not in basic.hide(str(basic.headers()))


def test_a_databases_password_is_hidden_by_itself_too() -> None:
    access = DatabaseAccess("postgresql://ada:opensesame@host/db")
    assert access.hide('password "opensesame" is wrong for ada') == f'password "{HIDDEN}" is wrong for ada'
    assert DatabaseAccess("nonsense://[").hide("x") == "x"
