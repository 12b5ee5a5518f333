"""Who still needs a version: live transactions that began with it, or may have to undo what it did.

The store is looked through first and SQL after it, because what leaves memory meanwhile is in SQL before it goes, and
stays there while it is live: so nothing that is live during the whole look is missed.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from datp.archive.database import Database
from datp.hotstore.keys import key
from datp.hotstore.store import Found, Store
from datp.model.status import Phase

PAGE: Final = 500
COMPLETE: Final = Phase.COMPLETE.encode()


async def find_user(store: Store, database: Database | None, name: str, versions: Iterable[str]) -> str | None:
    """A transaction that needs one of these versions; None when there is none. It looks at everything that is live."""
    needles = [needle for version in versions for needle in _needles(name, version)]
    for partition in range(store.partitions):
        if found := await _user_in_partition(store, partition, needles):
            return found
    after = ""
    while database is not None:
        states = await database.live_states(after, PAGE)
        for state in states:
            documents = [state.fields.get("state", b""), *state.join.values()]
            # Its end may be on its way to SQL.
            if _needs(documents, needles) and not await _has_ended(store, state.tx_id):
                return state.tx_id
        if len(states) < PAGE:
            break
        after = states[-1].tx_id
    return None


async def _has_ended(store: Store, tx_id: str) -> bool:
    async with store.turn() as turn:
        reply = turn.get_state([tx_id])
    found = reply.value[0]
    return isinstance(found, Found) and found.fields.get("phase") == COMPLETE


async def _user_in_partition(store: Store, partition: int, needles: list[bytes]) -> str | None:
    tag = store.tags[partition]
    states, joins = (key(name, tag, tx_id="") for name in ("state", "join"))
    for prefix in (states, joins):
        cursor = b"0"
        while True:
            [(cursor, keys)] = await store.connection.read(
                partition, [("SCAN", cursor, "MATCH", f"{prefix}*", "COUNT", PAGE)]
            )
            answers = await store.connection.read(partition, [("HGETALL", found) for found in keys]) if keys else []
            for found, answer in zip(keys, answers, strict=True):
                if isinstance(answer, Exception):
                    continue  # of another type: no transaction of ours
                fields = _pairs(answer)
                values = fields.values() if prefix == joins else [fields.get(b"state", b"")]
                if fields.get(b"phase") != COMPLETE and _needs(values, needles):
                    return str(found.decode().removeprefix(prefix))
            if cursor in (b"0", 0):
                break
    return None


def _needles(name: str, version: str) -> list[bytes]:
    """How a document names a version: among those that it has pinned, and in steps that a branch left to be undone."""
    return [f'"{name}":"{version}"'.encode(), f"{name}@{version}".encode()]


def _needs(documents: Iterable[bytes], needles: list[bytes]) -> bool:
    return any(needle in document for document in documents for needle in needles)


def _pairs(answer: Mapping[bytes, bytes] | list[bytes]) -> Mapping[bytes, bytes]:
    if isinstance(answer, Mapping):
        return answer
    return dict(zip(answer[::2], answer[1::2], strict=True))
