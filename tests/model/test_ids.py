"""Ids say where a transaction lives and when it was made; every malformed one is refused in the same way."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from made import NOW, TX_ID, any_text, anything, is_clear, sound_text, trying

from datp.errors import InvalidId
from datp.hotstore.keys import SLOTS, slot_of, tags
from datp.model.ids import (
    PARTITIONS_MAX,
    RANDOM_BITS,
    Owner,
    Partition,
    StepId,
    TransactionId,
    branch_id,
    made_at_ms,
    new_transaction_id,
    parse_external_id,
    parse_name,
    parse_owner,
    parse_transaction_id,
    partition_for,
    partition_of,
)

partitions = st.integers(0, PARTITIONS_MAX - 1).map(Partition)
times = st.integers(0, 2**45 - 1)
chances = st.integers(0, 2**RANDOM_BITS - 1)
ids = st.builds(new_transaction_id, partitions, times, chances)


@trying(200)
@given(partitions, times, chances)
def test_an_id_reads_back_as_what_it_was_made_of(partition: Partition, now_ms: int, chance: int) -> None:
    tx_id = new_transaction_id(partition, now_ms, chance)
    assert parse_transaction_id(tx_id) == tx_id
    assert partition_of(tx_id) == partition
    assert made_at_ms(tx_id) == now_ms
    assert len(tx_id) == 28


@trying(100)
@given(partitions, st.tuples(times, chances), st.tuples(times, chances))
def test_ids_of_a_partition_sort_by_time(partition: Partition, one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (new_transaction_id(partition, *one) < new_transaction_id(partition, *other)) == (one < other)


@trying(100)
@given(partitions, times, chances, chances)
def test_ids_that_chance_tells_apart_differ(partition: Partition, now_ms: int, one: int, other: int) -> None:
    assume(one != other)
    assert new_transaction_id(partition, now_ms, one) != new_transaction_id(partition, now_ms, other)


def test_an_id_looks_as_the_refusal_says_that_one_looks() -> None:
    with pytest.raises(InvalidId) as refusal:
        parse_transaction_id("tx-1")
    example = str(refusal.value).rpartition(" ")[2]
    assert parse_transaction_id(example) == example


@trying(100)
@given(ids, st.integers(0, 50), st.integers(0, 200))
def test_branches_have_stable_distinct_ids_in_their_parents_partition(
    parent: TransactionId, attempt: int, index: int
) -> None:
    step = StepId(f"s-{parent[3:]}.2.1")
    made = branch_id(parent, step, attempt, index)
    assert made == branch_id(parent, step, attempt, index)
    assert parse_transaction_id(made) == made
    assert partition_of(made) == partition_of(parent)
    others = [
        branch_id(parent, step, attempt, index + 1),
        branch_id(parent, step, attempt + 1, index),
        branch_id(parent, StepId(f"{step}.1"), attempt, index),
        parent,
    ]
    assert made not in others and len(set(others)) == 4


def test_a_thousand_branches_of_a_step_are_a_thousand_transactions() -> None:
    parent = TransactionId(TX_ID)
    step = StepId("s-1")
    assert len({branch_id(parent, step, attempt, index) for attempt in range(10) for index in range(100)}) == 1_000


@trying(300)
@given(anything | any_text | ids.map(lambda tx_id: tx_id[:-1]) | ids.map(str.upper) | ids.map(lambda i: f"{i}\n"))
def test_whatever_is_no_id_is_refused_with_a_clear_sentence(text: Any) -> None:
    for parse in (
        parse_transaction_id,
        parse_owner,
        lambda given: parse_name(given, "transactionType"),
        lambda given: parse_external_id(given, 128),
    ):
        try:
            parsed = parse(text)
        except InvalidId as error:
            assert is_clear(error) and error.field
        else:
            assert parsed == text and isinstance(text, str)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tx-",
        TX_ID[:-1],
        TX_ID + "0",
        TX_ID.upper(),
        TX_ID.replace("tx-", "TX-"),
        TX_ID.replace("-", "_"),
        TX_ID[:-1] + "i",
        TX_ID[:-1] + "l",
        TX_ID[:-1] + "o",
        TX_ID[:-1] + "u",
        TX_ID[:-1] + "٣",
        TX_ID + "\n",
        " " + TX_ID,
        TX_ID.encode(),
        None,
        7,
    ],
)
def test_an_id_that_is_almost_right_is_refused(text: Any) -> None:
    with pytest.raises(InvalidId) as refusal:
        parse_transaction_id(text)
    assert refusal.value.field == "txId"


@trying(100)
@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", fullmatch=True, alphabet=st.characters(codec="ascii")))
def test_an_owner_is_what_it_says_and_has_no_colon(text: str) -> None:
    assert parse_owner(text) == text and ":" not in text


@pytest.mark.parametrize("text", ["", "a:b", ":", "a b", "ä", "a" * 65, "-a", ".", "a\n", "a/b", None, 1])
def test_what_is_no_owner_is_refused(text: Any) -> None:
    with pytest.raises(InvalidId) as refusal:
        parse_owner(text)
    assert refusal.value.field == "owner"


@pytest.mark.parametrize("text", ["a", "Order", "shop/reserve", "a/b/c/d", "0.1_2-3", "a" * 64])
def test_names_have_up_to_four_parts(text: str) -> None:
    assert parse_name(text, "step") == text


@pytest.mark.parametrize(
    "text", ["", "/", "a/", "/a", "a//b", "a/b/c/d/e", "a b", "ä", "a" * 65, "a:b", "a@b", "-a", None]
)
def test_what_is_no_name_is_refused_and_the_field_is_named(text: Any) -> None:
    with pytest.raises(InvalidId) as refusal:
        parse_name(text, "nodeGroup")
    assert refusal.value.field == "nodeGroup" and "nodeGroup" in str(refusal.value)


@trying(200)
@given(sound_text)
def test_an_external_id_is_any_printable_text(text: str) -> None:
    has_control = any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text)
    try:
        assert parse_external_id(text, 20) == text
        assert 1 <= len(text) <= 20 and not has_control
    except InvalidId:
        assert has_control or not 1 <= len(text) <= 20


@pytest.mark.parametrize("text", ["a:b", "tx-1001", "zwölf, drei vier", "🎈", "a" * 128])
def test_an_external_id_may_hold_what_an_owner_may_not(text: str) -> None:
    assert parse_external_id(text, 128) == text


@trying(100)
@given(sound_text, st.integers(1, PARTITIONS_MAX))
def test_an_external_id_has_one_partition(external_id: str, count: int) -> None:
    found = partition_for(Owner("acme"), external_id, count)
    assert 0 <= found < count and found == partition_for(Owner("acme"), external_id, count)


def test_external_ids_spread_over_the_partitions() -> None:
    for count in (2, 3, 8, 16):
        found = Counter(partition_for(Owner("acme"), f"order-{n}", count) for n in range(20_000))
        even = 20_000 / count
        assert len(found) == count
        assert all(0.9 * even < number < 1.1 * even for number in found.values()), (count, found)


def test_owners_with_the_same_external_id_do_not_meet_in_one_partition() -> None:
    found = {partition_for(Owner(f"owner{n}"), "1", 16) for n in range(200)}
    assert len(found) == 16


def test_a_partitions_tag_is_its_own_and_stays() -> None:
    for count in (1, 2, 3, 7, 8, 16, 64, 1024):
        made = tags(count)
        assert len(set(made)) == count
        assert made == tags(count)
        slots = [slot_of(tag[1:-1]) for tag in made]
        assert slots == sorted(slots), "each partition has the stretch of the slots that its number says"
        assert all(int(tag[1:-1].partition(".")[0]) == index for index, tag in enumerate(made))


def primaries_of(count: int, primaries: int) -> Counter[int]:
    """How many partitions each of so many primaries serves, when they share the slots as cluster tools do."""
    bounds = [round(SLOTS * number / primaries) for number in range(1, primaries + 1)]
    slots = [slot_of(tag[1:-1]) for tag in tags(count)]
    return Counter(next(n for n, bound in enumerate(bounds) if slot < bound) for slot in slots)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 128])
def test_primaries_get_nearly_even_shares_of_the_partitions(count: int) -> None:
    for primaries in range(1, 17):
        found = primaries_of(count, primaries)
        shares = [found[n] for n in range(primaries)]
        assert max(shares) - min(shares) <= 2, f"{count} partitions on {primaries} primaries: {shares}"


def test_slots_are_those_of_the_cluster_specification() -> None:
    assert slot_of("123456789") == 0x31C3
    assert slot_of("foo") == 12182


def test_ids_of_a_random_sample_never_repeat() -> None:
    chance = random.Random(1)
    made = {new_transaction_id(Partition(3), NOW, chance.getrandbits(RANDOM_BITS)) for _ in range(5_000)}
    assert len(made) == 5_000
