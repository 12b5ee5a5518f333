"""Lanes: what waits for a host waits for no other, not for long, and nothing is lost or sent twice."""

from hypothesis import given
from hypothesis import strategies as st

from datp.webhooks.delivery import Delivery
from datp.webhooks.lanes import BACK_MAX_MS, NARROW, Lanes

ROOM = 50


def delivery(number: int, host: str = "a") -> Delivery:
    return Delivery(
        tx_id=f"tx-{number}",
        sequence=1,
        owner="acme",
        kind="transaction.completed",
        url=f"http://{host}.example/hook",
        body=b"",
        attempt=0,
        claim="c",
        send_by=0.0,
    )


class Road:
    """Lanes under a clock that the test holds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.started: list[Delivery] = []
        self.lanes = Lanes(self.started.append, lambda: self.now)

    def leave(self, *, took_ms: float = 10.0, is_fine: bool = True) -> None:
        self.lanes.leave(self.started.pop(0), took_ms, ROOM, is_fine=is_fine)


def test_a_lane_is_narrow_until_its_host_answers_and_grows_with_every_answer() -> None:
    road = Road()
    for number in range(30):
        assert road.lanes.enter(delivery(number), ROOM) is None
    assert len(road.started) == NARROW
    road.leave()
    assert len(road.started) == NARROW + 1
    for _ in range(8):
        road.leave()
    assert len(road.started) == NARROW + 9


def test_a_failure_makes_a_lane_narrower_but_never_closes_it() -> None:
    road = Road()
    for number in range(30):
        road.lanes.enter(delivery(number), ROOM)
    for _ in range(20):
        road.leave(is_fine=False)
    assert len(road.started) == 1


def test_a_lane_that_does_not_move_sends_back_what_waits_in_it_and_others_go_on() -> None:
    road = Road()
    for number in range(60):
        road.lanes.enter(delivery(number, "slow"), ROOM)
    road.now = 1.5
    back = list(road.lanes.tidy())
    assert len(back) == 60 - NARROW
    waits = [wait_ms for _, wait_ms in back]
    assert waits == sorted(waits) and waits[0] >= 1_500 / NARROW
    back_ms = road.lanes.enter(delivery(99, "slow"), ROOM)
    assert back_ms is not None and back_ms <= BACK_MAX_MS
    assert road.lanes.enter(delivery(100, "quick"), ROOM) is None
    assert road.started[-1].url == "http://quick.example/hook"


def test_a_quick_host_keeps_what_it_will_soon_reach() -> None:
    road = Road()
    for number in range(200):
        road.lanes.enter(delivery(number), ROOM)
        if len(road.started) == NARROW:
            road.leave(took_ms=2.0)
    assert [road.lanes.enter(delivery(1_000 + number), ROOM) for number in range(1_000)] == [None] * 1_000


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["enter", "leave", "fail", "wait", "tidy"]))))
def test_everything_that_enters_is_started_once_or_comes_back(steps: list[tuple[str, str]]) -> None:
    road = Road()
    entered: list[str] = []
    gone: list[str] = []
    for number, (host, what) in enumerate(steps):
        if what == "enter":
            one = delivery(number, host)
            entered.append(one.tx_id)
            if (back_ms := road.lanes.enter(one, ROOM)) is not None:
                assert 0 < back_ms <= BACK_MAX_MS
                gone.append(one.tx_id)
        elif what in ("leave", "fail") and road.started:
            gone.append(road.started[0].tx_id)
            road.leave(is_fine=what == "leave")
        elif what == "wait":
            road.now += 0.7
        elif what == "tidy":
            gone += [one.tx_id for one, _ in road.lanes.tidy()]
    left = [one.tx_id for one in road.lanes.leave_all()]
    assert sorted([*gone, *left, *(one.tx_id for one in road.started)]) == sorted(entered)
