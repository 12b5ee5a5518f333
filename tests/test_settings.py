"""Settings come from where they are said to, and whatever is wrong with one is told in a sentence that names it."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datp.errors import BadDefinition
from datp.settings import DEFAULTS, LIVE, NAMES, SECRET, Settings, check_shared, environment_variable, load, with_group

NUMBERS = [name for name in NAMES if isinstance(DEFAULTS[name], int)]
TEXTS = [name for name in NAMES if isinstance(DEFAULTS[name], str)]

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def larger(name: str) -> int:
    """A value that is allowed and not the default."""
    default = DEFAULTS[name]
    assert isinstance(default, int)
    return default + 1


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_is_read_from_the_environment_and_from_a_file_that_it_names(name: str, tmp_path: Path) -> None:
    secret = tmp_path / "value"
    secret.write_text(f"{larger(name)}\n")
    variable = environment_variable(name)
    assert getattr(load(environment={variable: str(larger(name))}), name) == larger(name)
    assert getattr(load(environment={f"{variable}_FILE": str(secret)}), name) == larger(name)


def takes_any_text(name: str) -> bool:
    """Some are one of a few words, or have a form."""
    try:
        load(environment={}, given={name: "said here"})
    except BadDefinition:
        return False
    return True


@pytest.mark.parametrize("name", [name for name in TEXTS if takes_any_text(name)])
def test_every_text_is_read_from_the_environment_and_from_a_file_that_it_names(name: str, tmp_path: Path) -> None:
    secret = tmp_path / "value"
    secret.write_text("  said there\n")
    variable = environment_variable(name)
    assert getattr(load(environment={variable: "said here"}), name) == "said here"
    assert getattr(load(environment={f"{variable}_FILE": str(secret)}), name) == "said there"


def test_the_nearer_goes_before_the_farther(tmp_path: Path) -> None:
    toml = tmp_path / "datp.toml"
    toml.write_text("workers = 1\nbatch_size_max = 1\nlease_ms = 20_000\nnode_group = 'toml'\n")
    secret = tmp_path / "value"
    secret.write_text("3")
    environment = {"DATP_WORKERS": "2", "DATP_WORKERS_FILE": str(secret), "DATP_BATCH_SIZE_MAX_FILE": str(secret)}
    settings = load(environment=environment, toml=toml, given={"node_group": "given", "lease_ms": None})
    assert (settings.workers, settings.batch_size_max) == (2, 3)
    assert (settings.lease_ms, settings.node_group) == (20_000, "given")
    assert load(environment={"DATP_WORKERS": ""}, toml=toml).workers == 1, "an empty variable says nothing"


def test_what_a_group_shares_goes_before_all_but_what_was_said_here() -> None:
    shared = {"workers": 7, "in_share": 3}
    assert (with_group(load(environment={}), shared).workers, load(environment={}).workers) == (7, DEFAULTS["workers"])
    here = with_group(load(environment={"DATP_WORKERS": "5"}), shared)
    assert (here.workers, here.in_share) == (5, 3)


def test_only_settings_that_may_change_while_nodes_run_are_shared() -> None:
    for name in set(NAMES) - LIVE:
        with pytest.raises(BadDefinition, match=name):
            check_shared({name: DEFAULTS[name]})


@pytest.mark.parametrize("content", [b"\xff\xfe", b"many"])
def test_a_file_that_holds_something_else_is_told_by_its_variable(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "value").write_bytes(content)
    with pytest.raises(BadDefinition, match="DATP_WORKERS"):
        load(environment={"DATP_WORKERS_FILE": str(tmp_path / "value")})


@pytest.mark.parametrize("name", sorted(SECRET))
def test_a_secret_is_in_no_sentence(name: str) -> None:
    for settings in (Settings(**{name: "redis://:hunter2@there"}), load(environment={}, given={name: "x:hunter2@y"})):
        assert "hunter2" not in str(check_refused(settings))


def check_refused(settings: Settings) -> BadDefinition:
    """What is said when another setting of these is wrong."""
    with pytest.raises(BadDefinition) as refused:
        with_group(settings, {"workers": "many"})
    return refused.value


@given(st.sampled_from(NAMES), st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])))
def test_any_text_in_the_environment_is_a_setting_or_refused_by_its_name(name: str, text: str) -> None:
    variable = environment_variable(name)
    try:
        value = getattr(load(environment={variable: text}), name)
    except BadDefinition as refused:
        assert variable in str(refused) or name in str(refused)
        assert refused.field
    else:
        assert type(value) is type(DEFAULTS[name])


@given(st.dictionaries(st.sampled_from(NAMES) | st.text(), anything, min_size=1, max_size=3))
def test_anything_that_is_shared_is_a_setting_or_refused(values: dict[str, Any]) -> None:
    try:
        checked = check_shared(values)
    except BadDefinition as refused:
        assert str(refused)
    else:
        assert set(checked) <= LIVE | {"description"}
        with_group(Settings(), checked)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_file_is_settings_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    toml = tmp_path_factory.getbasetemp() / "any.toml"
    toml.write_bytes(content)
    try:
        load(environment={}, toml=toml)
    except BadDefinition as refused:
        assert "any.toml" in str(refused)


@given(st.sampled_from(NAMES), anything)
def test_any_value_that_is_given_is_a_setting_or_refused(name: str, value: Any) -> None:
    try:
        load(environment={}, given={name: value})
    except BadDefinition as refused:
        assert refused.field
