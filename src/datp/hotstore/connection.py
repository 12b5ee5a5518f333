"""The wire: calls go to the shard that holds their partition, all of one turn in one round trip per shard.

A single server is a cluster of one shard, so there is one way of sending. redis-py's own retries are off (it sent one
call eleven times when replies were lost); what may be sent again is decided here: a call that the server says it did
not execute (NOSCRIPT, MOVED, TRYAGAIN), and nothing else. Whatever else goes wrong is told to the caller.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

import msgspec
from redis.asyncio import Redis
from redis.asyncio.connection import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MovedError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from datp.errors import BadRequest, StoreError, StoreFull, StoreLost, StoreUnreachable
from datp.hotstore.keys import slot_of
from datp.hotstore.scripts import Script

RESENDS_MAX: Final = 5
"""How often a call that was not executed is sent again, within one turn."""


KEPT_FREE: Final = 16
"""Connections for those who wait for bells and notices. Calls that find no other wait for one: the client library would
refuse them."""

READING: Final = frozenset(
    {
        *("EXISTS", "GET", "HEXISTS", "HGET", "HGETALL", "HKEYS", "HMGET", "HSTRLEN", "LPOS", "LRANGE", "PTTL"),
        *("SCAN", "SISMEMBER", "SMEMBERS", "TIME", "ZRANGE", "ZSCORE"),
    }
)
"""Commands that the checker of invariants and the doctor may send."""


TRANSIENT: Final = ("BUSY ", "LOADING ", "MASTERDOWN ", "MISCONF ", "NOREPLICAS ", "READONLY ", "CLUSTERDOWN ")
"""What a server's refusal begins with when it was not executed and the server may do it later: somebody's script runs,
its data are being loaded, its disk is full, its replicas are gone, it is no primary (any more)."""


class RawCall(msgspec.Struct):
    """One script call to one partition, ready to be sent."""

    script: Script
    partition: int
    argv: Sequence[Any]
    """bytes, str or int"""
    reply: Any = None
    """What came back: a decoded reply, or the StoreError that is to be raised."""


class Connection:
    """Calls to a store, which is one server or a cluster."""

    def __init__(self, url: str, *, timeout_ms: int, connections_max: int = 64) -> None:
        self._url = url
        self._timeout_s = timeout_ms / 1000
        self._connections_max = connections_max
        self._room = asyncio.Semaphore(connections_max - KEPT_FREE)
        self._tags: tuple[str, ...] = ()
        self._meta_keys: tuple[str, ...] = ()
        self._clients: dict[tuple[str, int] | None, Redis] = {}
        self._shard_of: list[tuple[str, int] | None] = []

    async def open(self, tags: tuple[str, ...]) -> None:
        """Which server holds which partition is known; raises StoreUnreachable."""
        self._tags = tags
        self._meta_keys = tuple(f"metaH:{tag}" for tag in tags)
        await self._discover()

    async def close(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    @property
    def partitions_by_server(self) -> list[list[int]]:
        """The partitions of each server that serves any."""
        by_shard: dict[tuple[str, int] | None, list[int]] = {}
        for partition, shard in enumerate(self._shard_of):
            by_shard.setdefault(shard, []).append(partition)
        return list(by_shard.values())

    @property
    def shards(self) -> int:
        return len(set(self._shard_of))

    async def execute(self, calls: Sequence[RawCall]) -> None:
        """Every call has its reply, or its error; one round trip per shard."""
        waiting = list(calls)
        for resend in range(RESENDS_MAX + 1):
            if resend:
                await asyncio.sleep(0.01 * 4**resend / 4)
            by_shard: dict[tuple[str, int] | None, list[RawCall]] = {}
            for call in waiting:
                by_shard.setdefault(self._shard_of[call.partition], []).append(call)
            if len(by_shard) == 1:
                [(shard, group)] = by_shard.items()
                waiting = await self._send(shard, group)
            else:
                unsent = await asyncio.gather(*(self._send(shard, group) for shard, group in by_shard.items()))
                waiting = [call for group in unsent for call in group]
            if not waiting:
                return
        for call in waiting:
            call.reply = StoreUnreachable(f"partition {call.partition} is being moved between servers")

    async def pop_first(self, keys: Sequence[str], timeout_s: float) -> str | None:
        """Waits until one of these lists has an element, and takes it; None when the time is out.

        In a cluster the keys of one call must share a slot, so each partition is waited for by itself.
        """
        if self.shards == 1 and self._shard_of[0] is None:
            return await self._pop(None, keys, timeout_s)
        by_tag: dict[str, list[str]] = {}
        for key in keys:
            by_tag.setdefault(key[key.index("{") : key.index("}") + 1], []).append(key)
        waits = [
            asyncio.ensure_future(self._pop(self._shard_of[self._tags.index(tag)], group, timeout_s))
            for tag, group in by_tag.items()
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            results = await asyncio.gather(*waits, return_exceptions=True)
        heard = [result for result in results if isinstance(result, str)]
        return heard[0] if heard else None

    async def subscribe(self, channels: Sequence[str]) -> "Notices":
        """What is published on these channels, of which each partition has one, from now on."""
        if any(self._shard_of):
            await self._discover()  # another server may serve them now
        by_shard: dict[tuple[str, int] | None, list[str]] = {}
        for shard, channel in zip(self._shard_of, channels, strict=True):
            by_shard.setdefault(shard, []).append(channel)
        notices = Notices()
        try:
            for shard, names in by_shard.items():
                await notices.subscribe(self._client(shard).connection_pool, names)
        except BaseException:
            await notices.close()
            raise
        return notices

    async def read(self, partition: int, commands: Sequence[tuple[Any, ...]], *, at_once: bool = False) -> list[Any]:
        """What these commands answer, in one round trip; with `at_once`, all at one moment. Only reading ones.

        A command's error stands in its answer's place.
        """
        assert all(command[0] in READING for command in commands), "what changes the store is a script"
        async with self._use(self._shard_of[partition]) as client:
            pipe = client.pipeline(transaction=at_once)
            for command in commands:
                pipe.execute_command(*command)
            answers: list[Any] = await pipe.execute(raise_on_error=False)
        return answers

    async def configuration(self, names: Sequence[str], partition: int = 0) -> dict[str, str]:
        """How the server of a partition is configured. Raises StoreError where it doesn't tell."""
        with _our_errors():
            answer = await self._client(self._shard_of[partition]).config_get(*names)
        return {str(name): str(value) for name, value in answer.items()}

    async def info(self, section: str, partition: int = 0) -> dict[str, Any]:
        """What the server of a partition says of itself."""
        async with self._use(self._shard_of[partition]) as client:
            answer: dict[str, Any] = await client.info(section)
        return answer

    # ── one shard ────────────────────────────────────────────────────────────────────────────────────────────

    async def _send(self, shard: tuple[str, int] | None, calls: list[RawCall]) -> list[RawCall]:
        """Sends the calls in one pipeline; returns those that the server did not execute and that may go again."""
        try:
            async with self._use(shard) as client:
                pipe = client.pipeline(transaction=False)
                for call in calls:
                    pipe.execute_command("EVALSHA", call.script.sha, 1, self._meta_keys[call.partition], *call.argv)
                replies = await pipe.execute(raise_on_error=False)
        except StoreError as failure:
            for call in calls:
                call.reply = failure
            await self._forget(shard, client)
            return []
        if not any(isinstance(reply, Exception) for reply in replies):
            for call, reply in zip(calls, replies, strict=True):
                call.reply = reply
            return []
        if any(isinstance(reply, ReadOnlyError) for reply in replies):
            # It became a replica. The name in the URL may lead to another server by now, but no old connection does.
            await self._forget(shard, client)
        return await self._sort_out(shard, calls, replies)

    async def _sort_out(self, shard: tuple[str, int] | None, calls: list[RawCall], replies: list[Any]) -> list[RawCall]:
        again: list[RawCall] = []
        missing: list[Script] = []
        for call, reply in zip(calls, replies, strict=True):
            if isinstance(reply, NoScriptError):
                missing.append(call.script)
                again.append(call)
            elif isinstance(reply, MovedError | AskError | TryAgainError):
                again.append(call)
            else:
                call.reply = _as_store_error(reply) if isinstance(reply, Exception) else reply
        try:
            if missing:
                async with self._use(shard) as client:
                    for script in missing:
                        await client.script_load(script.text)
            if any(isinstance(reply, MovedError) for reply in replies):
                await self._discover()
        except StoreError as failure:
            for call in again:
                call.reply = failure
            return []
        return again

    async def _pop(self, shard: tuple[str, int] | None, keys: Sequence[str], timeout_s: float) -> str | None:
        async with self._use_now(shard) as client:
            heard: Any = await client.blpop(list(keys), timeout=timeout_s)
        return heard[0].decode() if heard else None

    @contextlib.asynccontextmanager
    async def _use(self, shard: tuple[str, int] | None) -> AsyncIterator[Redis]:
        """The client of a shard, when a connection is free; what it raises is raised as one of ours."""
        async with self._room, self._use_now(shard) as client:
            yield client

    @contextlib.asynccontextmanager
    async def _use_now(self, shard: tuple[str, int] | None) -> AsyncIterator[Redis]:
        """The same, for one of those connections that are kept free."""
        client = self._client(shard)
        try:
            with _our_errors():
                yield client
        finally:
            if self._clients.get(shard) is not client:
                # It was given up meanwhile, perhaps while it was just connecting: nobody else would close that.
                await client.aclose()

    async def _forget(self, shard: tuple[str, int] | None, failed: Redis) -> None:
        """A connection that failed may have a reply under way; none of this client's is used again."""
        if self._clients.get(shard) is failed:
            del self._clients[shard]
            await failed.aclose()
        if shard is not None:
            with contextlib.suppress(StoreError):  # the next turn asks again
                await self._discover()

    # ── which server holds what ──────────────────────────────────────────────────────────────────────────────

    def _client(self, shard: tuple[str, int] | None) -> Redis:
        client = self._clients.get(shard)
        if client is None:
            client = self._clients[shard] = self._connect(shard)
        return client

    def _connect(self, shard: tuple[str, int] | None) -> Redis:
        options: dict[str, Any] = {
            "max_connections": self._connections_max,
            "socket_timeout": self._timeout_s,
            "socket_connect_timeout": self._timeout_s,
            "retry": Retry(NoBackoff(), 0),
            "health_check_interval": 0,
            "protocol": 2,
        }
        pool = ConnectionPool.from_url(self._url, **options)
        if shard is not None:
            pool.connection_kwargs.update(host=shard[0], port=shard[1])
        return Redis.from_pool(pool)

    async def _discover(self) -> None:
        try:
            served = await self._slots()
        except (TypeError, ValueError) as error:  # what the client library says to a URL that it doesn't understand
            raise BadRequest(f"That is not the URL of a store: {error}", field="store_url") from None
        if served is None:
            self._shard_of = [None] * len(self._tags)
            return
        shards = []
        for tag in self._tags:
            slot = slot_of(tag[1:-1])
            shard = next((shard for low, high, shard in served if low <= slot <= high), None)
            if shard is None:
                raise StoreUnreachable(f"no server of the cluster serves slot {slot} (partition tag {tag})")
            shards.append(shard)
        self._shard_of = list(shards)

    async def _slots(self) -> list[tuple[int, int, tuple[str, int]]] | None:
        """Which primary serves which slots; None when this is not a cluster."""
        asked: list[tuple[str, int] | None] = [None, *dict.fromkeys(s for s in self._shard_of if s)]
        problem: StoreError | None = None
        for shard in asked:
            try:
                async with self._use(shard) as client:
                    if not (await client.info("cluster")).get("cluster_enabled"):
                        return None
                    rows = await client.execute_command("CLUSTER SLOTS")  # type: ignore[no-untyped-call]  # their gap
            except StoreError as error:
                problem = error
                continue
            return _primaries(rows)
        assert problem is not None
        raise problem


class Notices:
    """Subscriptions, one connection to each server that serves any of the channels.

    By hand, and not by the client library's own: that one connects again by itself and says nothing, and whoever waits
    must look again when something may have been missed.
    """

    SILENCE_MAX_S: Final = 5.0
    """A server that is silent for so long is asked whether it is there, and once more is lost."""

    def __init__(self) -> None:
        self._heard: asyncio.Queue[str | StoreError | None] = asyncio.Queue()
        self._readers: list[asyncio.Task[None]] = []
        self._connections: list[Any] = []

    async def subscribe(self, pool: Any, channels: Sequence[str]) -> None:
        """What is published on these channels is heard, from now on. Raises StoreError."""
        connection = pool.make_connection()
        self._connections.append(connection)
        with _our_errors():
            await connection.connect()
            for channel in channels:
                await connection.send_command("SSUBSCRIBE", channel)
            confirmed = 0
            while confirmed < len(channels):
                answer = await connection.read_response()
                confirmed += answer[0] == b"ssubscribe"
                self._take(answer)
        self._readers.append(asyncio.create_task(self._read(connection), name="notices"))

    async def next(self) -> str | None:
        """What was published next; None when it was given up. Raises StoreError when something may be missed."""
        heard = await self._heard.get()
        if isinstance(heard, StoreError):
            raise heard
        return heard

    def give_up(self) -> None:
        """Whoever waits for the next waits no more."""
        self._heard.put_nowait(None)

    async def close(self) -> None:
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        for connection in self._connections:
            await connection.disconnect(nowait=True)

    async def _read(self, connection: Any) -> None:
        is_asked = False
        try:
            with _our_errors():
                while True:
                    answer = await connection.read_response(timeout=self.SILENCE_MAX_S, disconnect_on_error=False)
                    if answer is not None:
                        is_asked = False
                        self._take(answer)
                    elif is_asked:
                        raise StoreUnreachable("The store publishes nothing any more: it is silent")
                    else:
                        await connection.send_command("PING")
                        is_asked = True
        except StoreError as error:
            self._heard.put_nowait(error)

    def _take(self, answer: Any) -> None:
        kind = answer[0]
        if kind == b"smessage":
            self._heard.put_nowait(answer[2].decode())
        elif kind == b"sunsubscribe":
            self._heard.put_nowait(StoreUnreachable("another server serves these partitions now"))


def _primaries(rows: Any) -> list[tuple[int, int, tuple[str, int]]]:
    if isinstance(rows, dict):
        return [(low, high, tuple(value["primary"][:2])) for (low, high), value in rows.items()]
    return [(row[0], row[1], (row[2][0].decode(), row[2][1])) for row in rows]


@contextlib.contextmanager
def _our_errors() -> Iterator[None]:
    """What the client library raises is raised as one of ours."""
    try:
        yield
    except (RedisError, OSError) as error:
        raise _as_store_error(error) from None
    except RuntimeError as error:
        if "handler is closed" not in str(error):
            raise
        # uvloop's word for a connection that was closed before the write; asyncio says ConnectionResetError.
        raise StoreUnreachable("The store can't be reached: it closed the connection") from None


def _as_store_error(error: BaseException) -> StoreError:
    """What the client library raised, as one of ours."""
    text = str(error)
    if text.startswith("STORELOST"):
        found = text.removeprefix("STORELOST ").split(" script:")[0]
        return StoreLost(f"The store is not the one that this node knows: it says that it is {found!r}")
    if isinstance(error, OutOfMemoryError) or text.startswith(("OOM", "-OOM")):
        return StoreFull("The store is at its memory limit (maxmemory): it takes no new work until some is done")
    if isinstance(error, AuthenticationError):
        return StoreError(f"The store refuses this user or password: {text}")
    is_transient = isinstance(error, BusyLoadingError | ReadOnlyError | ClusterDownError) or text.startswith(TRANSIENT)
    if isinstance(error, ResponseError) and not is_transient:
        return StoreError(f"The store refused a call: {text}")
    return StoreUnreachable(f"The store can't be reached: {text or type(error).__name__}")
