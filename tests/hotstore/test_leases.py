"""Leases: renewed by whoever holds the token, reaped when they end, and one grace after a silence."""

from driver import Driver


def _what(happened: list[tuple[str, str, str]]) -> list[str]:
    return [what for _, what, _ in happened]


async def test_a_renewed_lease_is_not_reaped(hot: Driver) -> None:
    run = await hot.running()
    await hot.pass_time(10 * hot.store.settings.lease_ms, alive=[run])
    assert await hot.reaped() == []


async def test_a_lease_ends_at_its_end_and_not_before(hot: Driver) -> None:
    run = await hot.running()
    await hot.pass_time(hot.store.settings.lease_ms - 1)
    assert await hot.reaped() == []
    hot.clock.advance(1)
    assert await hot.reaped() == [(run.tx_id, "REQUEUED", "1")]


async def test_after_a_silence_everybody_gets_one_lease_to_renew(hot: Driver) -> None:
    """The store was away: nobody could renew, and nobody is dead."""
    run = await hot.running()
    lease_ms = hot.store.settings.lease_ms
    hot.clock.advance(2 * lease_ms)
    assert _what(await hot.reaped()) == ["GRACE"]
    hot.clock.advance(lease_ms - 1)
    assert _what(await hot.reaped()) == ["GRACE"]
    assert [result.code for result in await hot.renew(run)] == ["OK"]
    hot.clock.advance(1)
    assert "REQUEUED" not in _what(await hot.reaped())


async def test_a_silence_gets_one_grace_and_not_another(hot: Driver) -> None:
    """Otherwise nothing would ever be reaped where all nodes are dead but the one that sweeps."""
    run = await hot.running()
    lease_ms = hot.store.settings.lease_ms
    hot.clock.advance(lease_ms)
    assert _what(await hot.reaped()) == ["GRACE"]
    hot.clock.advance(lease_ms)
    assert await hot.reaped() == [(run.tx_id, "REQUEUED", "1")]


async def test_the_grace_is_given_also_when_a_node_was_back_before_the_sweeper(hot: Driver) -> None:
    await hot.running()
    hot.clock.advance(2 * hot.store.settings.lease_ms)
    await hot.take()
    assert _what(await hot.reaped()) == ["GRACE"]


async def test_in_a_grace_the_next_lease_is_due_at_its_end(hot: Driver) -> None:
    """The sweeper sleeps until then; it must not be told to look at once, all the time."""
    await hot.running()
    hot.clock.advance(2 * hot.store.settings.lease_ms)
    swept = await hot.reap()
    assert swept.next_due_ms == hot.clock.now_ms() + hot.store.settings.lease_ms


async def test_a_deadline_is_enforced_in_a_grace_too(hot: Driver) -> None:
    await hot.running()
    [tx_id] = await hot.queued(deadline_in_ms=100)
    hot.clock.advance(2 * hot.store.settings.lease_ms)
    assert (tx_id, "OK", "timeout") in await hot.reaped()


async def test_whoever_holds_the_directory_reaps_at_once(hot: Driver) -> None:
    run = await hot.running()
    happened = (await hot.reap(at_once=True)).happened
    assert [(one.tx_id, one.what) for one in happened] == [(run.tx_id, "REQUEUED")]


async def test_the_first_loss_may_be_a_neighbours_fault_and_later_ones_are_borne_attempts_max_times(
    hot: Driver,
) -> None:
    [tx_id] = await hot.queued()
    most = hot.store.settings.attempts_max
    for losses in range(1, most + 1):
        run = await hot.take_one(tx_id, alone=True)
        assert await hot.lose_lease(run) == [(tx_id, "REQUEUED", str(losses))]
    run = await hot.take_one(tx_id, alone=True)
    assert await hot.lose_lease(run) == [(tx_id, "PARKED", str(most + 1))]
    assert hot.phase(tx_id) == "exception"


async def test_a_loss_in_the_company_of_others_is_not_counted_either(hot: Driver) -> None:
    most = hot.store.settings.attempts_max
    poison, innocent = await hot.queued(2)
    await hot.lose_lease(*(await hot.take(2)).taken)
    together = (await hot.take(2, alone=True)).taken
    assert [run.tx_id for run in together] == [poison, innocent]
    await hot.lose_lease(*together)
    for losses in range(3, most + 2):
        assert await hot.lose_lease(await hot.take_one(poison, alone=True)) == [(poison, "REQUEUED", str(losses))]
    run = await hot.take_one(poison, alone=True)
    assert await hot.lose_lease(run) == [(poison, "PARKED", str(most + 2))]
    await hot.complete(await hot.take_one(innocent, alone=True))


async def test_saving_state_forgets_the_losses(hot: Driver) -> None:
    [tx_id] = await hot.queued()
    for _ in range(3 * hot.store.settings.attempts_max):
        run = await hot.take_one(tx_id, alone=True)
        await hot.checkpoint(run)
        assert await hot.lose_lease(run) == [(tx_id, "REQUEUED", "1")]


async def test_no_more_than_wanted_are_reaped(hot: Driver) -> None:
    await hot.queued(5)
    await hot.take(5)
    await hot.pass_time(hot.store.settings.lease_ms)
    assert len((await hot.reap(want=2)).happened) == 2
    assert len((await hot.reap(want=10)).happened) == 3


async def test_it_says_when_the_next_lease_ends(hot: Driver) -> None:
    await hot.running()
    assert (await hot.reap()).next_due_ms == hot.clock.now_ms() + hot.store.settings.lease_ms
