"""Whether a store is in order: every transaction in exactly one place, and nothing left over (design 2's table).

Tests ask after every test, the simulator after every step, and `datp doctor` for an operator. This is the second
caller of Redis beside the store, and it only reads. The first look is taken piece by piece while others write; what
seems wrong is looked at again, with its relatives, at one moment (MULTI), and only what is wrong then is told.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from datp.hotstore.keys import key
from datp.hotstore.store import Store
from datp.model.status import FINAL, Phase

# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────

TABLE_TEXT: Final = """
          queue processing running sleeping joining join   exceptions reasons to_archive deadlines started ttl
queued    once  no         no      no       no      joined no         no      may        due       own     no
running   no    yes        yes     no       no      joined no         no      may        due       own     no
sleeping  no    no         no      yes      no      no     no         no      may        verdict   own     no
waiting   no    no         no      yes      no      no     no         no      may        verdict   own     no
joining   no    no         no      no       yes     yes    no         no      may        due       own     no
exception no    no         no      no       no      joined yes        yes     may        due       may     no
complete  no    no         no      no       no      no     no         no      until_ttl  no        own     may
evicted   no    no         no      yes      no      no     no         no      no         no        no      no
gone      no    no         no      no       no      no     may        listed  no         no        parked  no
"""
"""Phase (or what stands in its stead) → where the transaction is at rest; the words are explained by RULES."""

RULES: Final[dict[str, Callable[["Sight"], bool | None]]] = {
    "yes": lambda sight: True,
    "no": lambda sight: False,
    "may": lambda sight: None,
    "once": lambda sight: True,
    # The branches' results stay until the run that was given them has stored something.
    "joined": lambda sight: sight.state.get("joined") == "1",
    "due": lambda sight: _is_due(sight),
    # A sleeper's deadline is in its score; only a branch that was cancelled in its sleep is in deadlineZ.
    "verdict": lambda sight: bool(sight.state.get("verdict")) and not sight.is_undoing,
    "until_ttl": lambda sight: sight.ttl_ms < 0,
    # A branch appears under its parent only; and what is archived for good is found in SQL.
    "own": lambda sight: not sight.state.get("parent") and sight.ttl_ms < 0,
    "listed": lambda sight: "exceptions" in sight.scores,
    "parked": lambda sight: None if "exceptions" in sight.scores else False,
}
"""True: it must be there, False: it must not, None: it may."""


def _is_due(sight: "Sight") -> bool | None:
    """Whether it has a deadline that still counts; with a verdict, that may be waiting to be enforced."""
    if sight.is_undoing:
        return False
    if sight.state.get("verdict"):
        return None
    return math.isfinite(sight.number("deadline"))


_ALWAYS: Final = ("phase", "version", "sequence")
_EVERY: Final = (*_ALWAYS, "owner", "type", "pipeline_version", "started_at", "group", "queue")

REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    "queued": (*_EVERY, "event"),
    "running": (*_EVERY, "event", "token"),
    "sleeping": (*_EVERY, "event", "wakes_at"),
    "waiting": (*_EVERY, "event", "wakes_at", "wake_switch"),
    "joining": (*_EVERY, "event"),
    "exception": _ALWAYS,
    "complete": (*_EVERY, "status", "output", "note"),
}
"""Fields without which a hash is only a part of one. What is broken is parked, so there the least is asked."""

_MAY_BE_EMPTY: Final = frozenset({"wakes_at", "note"})

FIELDS: Final = tuple(
    sorted(
        {
            *(name for names in REQUIRED.values() for name in names),
            *("token", "parent", "deadline", "verdict", "undoing", "joined", "switches", "status", "external_id"),
        }
    )
)

SETS: Final = (
    *("processing", "running", "sleeping", "joining", "deadlines", "exceptions", "to_archive", "webhooks", "started"),
)

_META: Final = (":order", ":need", ":open", ":won", ":settled")

LOOKS_MAX: Final = 5
"""How often a suspect is looked at again while it moves."""

CHUNK: Final = 500
"""How many things are asked for in one round trip."""


# ── what is seen of one transaction ──────────────────────────────────────────────────────────────────────────────


class Sight(msgspec.Struct):
    """Everything that the store holds under one transaction's id."""

    tx_id: str
    state: dict[str, str] = {}
    """The fields that it has, without the document; empty when there is no hash."""
    has_document: bool = False
    ttl_ms: int = -2
    queues: dict[str, int] = {}
    """`<queue> <group>` → how often its id stands there."""
    withdrawn: set[str] = set()
    scores: dict[str, float] = {}
    """Sorted set → its score there."""
    evicted: str = ""
    has_reason: bool = False
    has_switches: bool = False
    has_webhook: bool = False
    has_chain: bool = False
    """Deliveries that wait for another."""
    join: dict[str, str] = {}
    external_ids: dict[str, int] = {}
    """The externalId keys that name it, each with its TTL."""

    @property
    def phase(self) -> str:
        if self.state:
            return self.state.get("phase", "")
        return "evicted" if self.evicted else "gone"

    @property
    def is_undoing(self) -> bool:
        return bool(self.state.get("undoing"))

    @property
    def is_live(self) -> bool:
        return bool(self.state) and self.phase != Phase.COMPLETE

    @property
    def open_branches(self) -> list[str]:
        return [name for name, result in self.join.items() if name not in _META and not result]

    @property
    def relatives(self) -> list[str]:
        parent = self.state.get("parent")
        return [*([parent] if parent else []), *(name for name in self.join if name not in _META)]

    def number(self, name: str) -> float:
        """A field's number; infinity when it has none."""
        try:
            return float(self.state[name])
        except (KeyError, ValueError):
            return math.inf


# ── the rules ────────────────────────────────────────────────────────────────────────────────────────────────────


def _parse_table(text: str) -> dict[str, dict[str, str]]:
    head, *rows = [line.split() for line in text.strip().splitlines()]
    return {row[0]: dict(zip(head, row[1:], strict=True)) for row in rows}


TABLE: Final = _parse_table(TABLE_TEXT)


def broken_rules(sight: Sight, known: dict[str, Sight]) -> list[str]:
    """A sentence for everything that is wrong with a transaction; `known` has its relatives."""
    if sight.phase not in TABLE:
        return [f"{sight.tx_id} has the phase {sight.phase!r}; it must be one of {', '.join(REQUIRED)}"]
    problems = [
        *_places(sight),
        *_queue_copies(sight),
        *_fields(sight),
        *_scores(sight),
        *_join(sight, known),
        *_branch(sight, known),
        *_external_id(sight),
    ]
    return [f"{sight.tx_id} is {sight.phase}: {problem}" for problem in problems]


def _places(sight: Sight) -> Iterator[str]:
    """The table's row, but for the queue."""
    for place, rule in TABLE[sight.phase].items():
        match place:
            case "queue":
                continue
            case "join":
                found = bool(sight.join)
            case "reasons":
                found = sight.has_reason
            case "ttl":
                found = sight.ttl_ms >= 0
            case _:
                found = place in sight.scores
        wanted = RULES[rule](sight)
        if wanted is not None and found != wanted:
            yield f"{_NAMES[place]} {'has' if found else 'lacks'} it, and must{'' if wanted else ' not'} have it"
    if sight.has_webhook != ("webhooks" in sight.scores):
        has, lacks = ("webhookH", "webhooksZ") if sight.has_webhook else ("webhooksZ", "webhookH")
        yield f"{has} has it, but {lacks} lacks it; both or none must have it"
    if sight.has_chain and not sight.has_webhook:
        yield "webhookL has it, but webhookH lacks it; what waits must wait for something"
    if sight.evicted and sight.state:
        yield "evictedH has it, but it is in memory; one of them must be gone"


def _queue_copies(sight: Sight) -> Iterator[str]:
    """Its id stands once where it is queued, and once more in each list from which it was withdrawn."""
    own = f"{sight.state.get('queue')} {sight.state.get('group')}" if sight.phase == Phase.QUEUED else ""
    for place in sorted({*sight.queues, *sight.withdrawn, *([own] if own else [])}):
        found, wanted = sight.queues.get(place, 0), (place == own) + (place in sight.withdrawn)
        if found != wanted:
            withdrawn = "withdrawn" if place in sight.withdrawn else "not withdrawn"
            yield f"queue {place} has it {found} times, and must have it {wanted} times ({withdrawn} from there)"


def _fields(sight: Sight) -> Iterator[str]:
    state, phase = sight.state, sight.phase
    for name in REQUIRED.get(phase, ()):
        if name not in state or (not state[name] and name not in _MAY_BE_EMPTY):
            yield f"its hash has no {name}, and must have it"
    if state and phase != Phase.EXCEPTION and not sight.has_document:
        yield "its hash has no document, and must have it"
    if state.get("token") and phase != Phase.RUNNING:
        yield f"it has the token {state['token']}, and must have none"
    if state and sight.number("version") < sight.number("sequence"):
        yield f"its version {state.get('version')} is below its sequence {state.get('sequence')}, and must not be"
    status = state.get("status")
    if phase == Phase.COMPLETE and status not in FINAL:
        yield f"its status is {status}, and must be final"
    if sight.is_live and status is not None:
        yield f"its hash has the status {status}, and must have none before the end"
    if sight.has_switches and (not sight.is_live or state.get("switches") != "1"):
        yield "it has a switchH, and must have none" + (" without the field switches" if sight.is_live else "")


def _scores(sight: Sight) -> Iterator[str]:
    """Times that are told twice are the same."""
    counts = not sight.is_undoing
    deadline = sight.number("deadline") if counts else math.inf
    asleep, due = sight.scores.get("sleeping"), sight.scores.get("deadlines")
    if asleep is not None and sight.phase in (Phase.SLEEPING, Phase.WAITING):
        wanted = min(sight.number("wakes_at"), deadline)
        if asleep != wanted:
            yield f"its score in sleepingZ is {asleep:.0f}, and must be {wanted:.0f}, the first of wake and deadline"
    if due is not None and not sight.state.get("verdict") and due != deadline:
        yield f"its score in deadlineZ is {due:.0f}, and must be its deadline {deadline:.0f}"


def _join(sight: Sight, known: dict[str, Sight]) -> Iterator[str]:
    """What a parent knows of its branches is true."""
    join = sight.join
    if not join:
        return
    branches = [name for name in join if name not in _META]
    opened = sight.open_branches
    if missing := [name for name in (":order", ":need", ":open", ":won") if name not in join]:
        yield f"its joinH has no {', '.join(missing)}, and must have it"
        return
    if sorted(join[":order"].split()) != sorted(branches):
        yield f"its joinH orders {join[':order']}, and must order its branches {' '.join(branches)}"
    if int(join[":open"]) != len(opened):
        yield f"its joinH counts {join[':open']} open branches, and must count {len(opened)}"
    need, won, closed = int(join[":need"]), int(join[":won"]), len(branches) - len(opened)
    if not 0 <= won <= closed:
        yield f"its joinH counts {won} branches that succeeded, and must count at most {closed}, which have ended"
    if sight.phase == Phase.JOINING and not opened:
        yield "all its branches have ended, and it must not wait for them any more"
    if sight.phase != Phase.JOINING and opened:
        yield f"its branch {opened[0]} is open, and it must be joining"
    is_decided = closed > 0 and need > 0 and (won >= need or won + len(opened) < need)
    # A verdict that still waits in deadlineZ will settle the join when it is enforced.
    has_verdict = bool(sight.state.get("verdict")) and "deadlines" not in sight.scores
    if opened and ":settled" not in join and (is_decided or has_verdict):
        yield "its join is decided, and its open branches must have been cancelled"
    for branch_id in opened:
        branch = known.get(branch_id, Sight(branch_id))
        if not branch.is_live:
            yield f"its joinH says that branch {branch_id} is open, but that is {branch.phase}; it must be live"
        elif branch.state.get("parent") != sight.tx_id:
            yield f"its branch {branch_id} has the parent {branch.state.get('parent')}, and must have this one"
        elif ":settled" in join and not branch.state.get("verdict") and not branch.is_undoing:
            yield f"its join is settled, and its open branch {branch_id} must have a verdict"


def _branch(sight: Sight, known: dict[str, Sight]) -> Iterator[str]:
    """A live branch's parent waits for it."""
    parent_id = sight.state.get("parent")
    if parent_id and sight.is_live:
        parent = known.get(parent_id, Sight(parent_id))
        if parent.join.get(sight.tx_id) != "":
            yield f"its parent {parent_id} is {parent.phase} and does not wait for it; it must, or have no such branch"


def _external_id(sight: Sight) -> Iterator[str]:
    """An externalId names a transaction that exists, for ever while it lives, and for a while after that."""
    external_id = sight.state.get("external_id", "")
    own = f"{sight.state.get('owner')}:{external_id}" if external_id else ""
    if own and sight.is_live and sight.phase != Phase.EXCEPTION and own not in sight.external_ids:
        yield f"no externalId key {own} names it, and one must"
    for name, ttl_ms in sight.external_ids.items():
        if sight.state and name != own:
            yield f"the externalId key {name} names it, and must not: its own is {own or 'none'}"
        elif (sight.is_live or sight.evicted) and ttl_ms >= 0:
            yield f"its externalId key {name} has a TTL, and must have none while it lives"
        elif not (sight.is_live or sight.evicted or "exceptions" in sight.scores) and ttl_ms < 0:
            yield f"its externalId key {name} has no TTL, and must have one after the end"


# ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def broken_invariants(store: Store) -> list[str]:
    """A sentence for everything that is not as it must be; none when all is in order."""
    problems: list[str] = []
    for partition in range(store.partitions):
        view = _View(store, partition)
        seen = await view.look()
        suspects = [sight.tx_id for sight in seen.values() if broken_rules(sight, seen)]
        for tx_id in suspects:
            again = await view.look_again(seen[tx_id])
            problems += broken_rules(again[tx_id], again) if again else []
    return problems


def _name(place: str) -> str:
    return key(place, "").partition(":")[0]


_NAMES: Final = {place: _name(place) for place in (*SETS, "join", "reasons")} | {"ttl": "a TTL"}


class _View:
    """One partition, and how it is read."""

    def __init__(self, store: Store, partition: int) -> None:
        self._connection = store.connection
        self._partition = partition
        self._tag = store.tags[partition]

    def _key(self, place: str, **parts: str) -> str:
        return key(place, self._tag, **parts)

    async def look(self) -> dict[str, Sight]:
        """Every transaction of which there is a trace, seen piece by piece."""
        seen: dict[str, Sight] = {}

        def sight(tx_id: str | bytes) -> Sight:
            tx_id = _text(tx_id)
            if tx_id not in seen:
                seen[tx_id] = Sight(tx_id)
            return seen[tx_id]

        found = await self._keys()
        for tx_id in found["webhook"]:
            sight(tx_id).has_webhook = True
        for tx_id in found["webhook_chain"]:
            sight(tx_id).has_chain = True
        for tx_id in found["switches"]:
            sight(tx_id).has_switches = True
        evicted, reasons, withdrawn, *sets = await self._read(
            [
                ("HGETALL", self._key("evicted")),
                ("HKEYS", self._key("reasons")),
                ("SMEMBERS", self._key("withdrawn")),
                *(("ZRANGE", self._key(place), 0, -1, "WITHSCORES") for place in SETS),
            ]
        )
        for tx_id, version in evicted.items():
            sight(tx_id).evicted = _text(version)
        for tx_id in reasons:
            sight(tx_id).has_reason = True
        for entry in withdrawn:
            place, _, tx_id = _text(entry).rpartition(" ")
            sight(tx_id).withdrawn.add(place)
        for place, members in zip(SETS, sets, strict=True):
            for tx_id, score in _scored(members):
                sight(tx_id).scores[place] = score
        places = found["queue"]
        for place, ids in await self._each(places, lambda place: [("LRANGE", self._list(place), 0, -1)]):
            for tx_id in ids[0]:
                queues = sight(tx_id).queues
                queues[place] = queues.get(place, 0) + 1
        for tx_id, answers in await self._each(found["state"], self._state_commands):
            _fill_state(sight(tx_id), answers)
        for tx_id, answers in await self._each(found["join"], self._join_commands):
            _fill_join(sight(tx_id), answers)
        for name, answers in await self._each(found["external_id"], self._external_id_commands):
            if answers[0] is not None:
                sight(_text(answers[0]).partition(" ")[0]).external_ids[name] = answers[1]
        return seen

    async def look_again(self, suspect: Sight) -> dict[str, Sight]:
        """A suspect with its relatives, at one moment; nothing, when it changes faster than one can look."""
        for _ in range(LOOKS_MAX):
            ids = {suspect.tx_id, *suspect.relatives}
            places = {*suspect.queues, *suspect.withdrawn, *self._place_of(suspect)}
            names = {*suspect.external_ids, *_own_external_id(suspect)}
            seen = await self._look_at(suspect.tx_id, sorted(ids), sorted(places), sorted(names))
            suspect = seen[suspect.tx_id]
            # It may have moved since, to where this look did not reach.
            if (
                ids.issuperset(suspect.relatives)
                and places.issuperset(self._place_of(suspect))
                and names.issuperset(_own_external_id(suspect))
            ):
                return seen
        return {}

    async def _look_at(self, suspect: str, ids: list[str], places: list[str], names: list[str]) -> dict[str, Sight]:
        commands: list[tuple[Any, ...]] = []
        for tx_id in ids:
            commands += [*self._state_commands(tx_id), *self._join_commands(tx_id)]
            commands += [("ZSCORE", self._key(place), tx_id) for place in SETS]
            commands += [("HGET", self._key("evicted"), tx_id), ("HEXISTS", self._key("reasons"), tx_id)]
            commands += [
                ("EXISTS", self._key(place, tx_id=tx_id)) for place in ("switches", "webhook", "webhook_chain")
            ]
        for place in places:
            commands.append(("LPOS", self._list(place), suspect, "COUNT", 0))
            commands.append(("SISMEMBER", self._key("withdrawn"), f"{place} {suspect}"))
        for name in names:
            commands += self._external_id_commands(name)
        answers = iter(await self._read(commands, at_once=True))
        seen: dict[str, Sight] = {}
        for tx_id in ids:
            sight = seen[tx_id] = Sight(tx_id)
            _fill_state(sight, [next(answers) for _ in range(3)])
            _fill_join(sight, [next(answers)])
            for place in SETS:
                if (score := next(answers)) is not None:
                    sight.scores[place] = float(score)
            sight.evicted = _text(next(answers) or b"")
            sight.has_reason, sight.has_switches = bool(next(answers)), bool(next(answers))
            sight.has_webhook, sight.has_chain = bool(next(answers)), bool(next(answers))
        again = seen[suspect]
        for place in places:
            if positions := next(answers):
                again.queues[place] = len(positions)
            if next(answers):
                again.withdrawn.add(place)
        for name in names:
            value, ttl_ms = next(answers), next(answers)
            if value is not None and _text(value).partition(" ")[0] == again.tx_id:
                again.external_ids[name] = ttl_ms
        return seen

    def _place_of(self, sight: Sight) -> set[str]:
        state = sight.state
        return {f"{state['queue']} {state['group']}"} if {"queue", "group"} <= state.keys() else set()

    def _list(self, place: str) -> str:
        queue, _, group = place.partition(" ")
        return self._key("queue", queue="In" if queue == "in" else "Out", group=group)

    def _state_commands(self, tx_id: str) -> list[tuple[Any, ...]]:
        state = self._key("state", tx_id=tx_id)
        return [("HMGET", state, *FIELDS), ("HSTRLEN", state, "state"), ("PTTL", state)]

    def _join_commands(self, tx_id: str) -> list[tuple[Any, ...]]:
        return [("HGETALL", self._key("join", tx_id=tx_id))]

    def _external_id_commands(self, name: str) -> list[tuple[Any, ...]]:
        owner, _, external_id = name.partition(":")
        full = self._key("external_id", owner=owner, external_id=external_id)
        return [("GET", full), ("PTTL", full)]

    async def _keys(self) -> dict[str, list[str]]:
        """The names of the keys of which there is one for each transaction, group or externalId, without the tag."""
        found: dict[str, list[str]] = {
            place: [] for place in ("state", "switches", "join", "webhook", "webhook_chain", "external_id", "queue")
        }
        kinds = {_name(place): place for place in found if place != "queue"}
        cursor: Any = 0
        while True:
            [(cursor, names)] = await self._read([("SCAN", cursor, "MATCH", f"*:{self._tag}*", "COUNT", 1000)])
            for name in names:
                kind, _, rest = _text(name).partition(f":{self._tag}:")
                if kind in kinds:
                    found[kinds[kind]].append(rest)
                elif kind in ("qInL", "qOutL"):
                    found["queue"].append(f"{'in' if kind == 'qInL' else 'out'} {rest}")
            if not int(cursor):
                return {place: sorted(set(names)) for place, names in found.items()}

    async def _each(
        self, things: Sequence[str], commands: Callable[[str], list[tuple[Any, ...]]]
    ) -> Iterable[tuple[str, list[Any]]]:
        """Each thing with the answers to its commands."""
        answered: list[tuple[str, list[Any]]] = []
        for start in range(0, len(things), CHUNK):
            asked = [(thing, commands(thing)) for thing in things[start : start + CHUNK]]
            answers = iter(await self._read([command for _, group in asked for command in group]))
            answered += [(thing, [next(answers) for _ in group]) for thing, group in asked]
        return answered

    async def _read(self, commands: list[tuple[Any, ...]], *, at_once: bool = False) -> list[Any]:
        return await self._connection.read(self._partition, commands, at_once=at_once)


def _own_external_id(sight: Sight) -> set[str]:
    external_id = sight.state.get("external_id")
    return {f"{sight.state.get('owner')}:{external_id}"} if external_id else set()


def _fill_state(sight: Sight, answers: list[Any]) -> None:
    """A key that is no hash counts as none: its id belongs on the exception list."""
    values, length, ttl_ms = answers
    if isinstance(values, Exception):
        return
    sight.state = {name: _text(value) for name, value in zip(FIELDS, values, strict=True) if value is not None}
    if not sight.state and ttl_ms != -2:
        sight.state = {"phase": ""}
    sight.has_document = not isinstance(length, Exception) and length > 0
    sight.ttl_ms = ttl_ms


def _fill_join(sight: Sight, answers: list[Any]) -> None:
    if isinstance(answers[0], dict):
        sight.join = {_text(name): _text(result) for name, result in answers[0].items()}


def _scored(members: list[Any]) -> Iterator[tuple[str, float]]:
    """Members and scores, whether the client has paired them or not."""
    if members and isinstance(members[0], tuple):
        yield from ((_text(tx_id), float(score)) for tx_id, score in members)
    else:
        yield from ((_text(members[place]), float(members[place + 1])) for place in range(0, len(members), 2))


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
