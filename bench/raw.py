"""The raw scripted limit of the store: what batches of transactions cost when no engine stands around them.

Three scripts do to the keys what the engine's enqueue, dequeue and complete must do, in the shape that was
measured to be the cheapest: one call per 100 items, the small fields of all items as one msgpack blob, the
big states as arguments of their own; the complete of one batch and the take of the next share a round trip.
No step is run and no document is decoded. The engine's figures are given as a share of these, so both must
come from the same run, on the same server.

    python -m bench.raw [--total 20000] [--server redis-server]
"""

import argparse
import asyncio
import itertools
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import uvloop
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from bench.cores import apart
from datp.embedded import EmbeddedServer, find_engine, identify

BATCH_SIZE = 100
REPEATS = 5
SERVER_OPTIONS = {"auto-aof-rewrite-percentage": "0"}  # a rewrite would be measured as a slow script

NO_RETRY = Retry(NoBackoff(), 0)  # a call that is sent twice would be measured as one

STORE_ID = "raw-yardstick"
KEYS = ("metaH:{raw}", "qInL:{raw}", "processingZ:{raw}", "runningZ:{raw}", "toArchiveZ:{raw}")
META, QUEUE, PROCESSING, RUNNING, TO_ARCHIVE = KEYS
EVERY_KEY = "*{raw}*"

STATE_QUEUED = b'{"transactionData":{"note":"' + b"q" * 993 + b'"}}'
STATE_COMPLETE = b'{"transactionData":{"note":"' + b"c" * 2017 + b'"}}'
OUTPUT = '{"ok":true,"reference":"0123456789abcdef"}'

# Lua in strings is fine here, and only here: this is a yardstick, not the product.
PRELUDE = """
local meta, queue, processing, running, to_archive = unpack(KEYS)
if redis.call('HGET', meta, 'storeId') ~= ARGV[1] then
  return redis.error_reply('STORE_LOST this is not the store that the caller knows')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function count(what, n)
  for resolution, period_ms in ipairs({10000, 300000, 3600000}) do
    redis.call('HINCRBY', 'stats' .. resolution .. 'H:{raw}:' .. (now - now % period_ms), what, n)
  end
end
"""

# args: store id, items (id, owner, pipeline, pipeline version, node group, event), one state per item
# returns: one result per item
ENQUEUE = """
local queued, results = {}, {}
for i, item in ipairs(cmsgpack.unpack(ARGV[2])) do
  local id, owner, pipeline, pipeline_version, node_group, event = unpack(item)
  local key = 'stateH:{raw}:' .. id
  if redis.call('HGET', key, 'phase') then
    results[i] = 'ALREADY'
  else
    redis.call('HSET', key, 'phase', 'queued', 'version', now, 'sequence', now, 'queuedMs', now, 'attempt', 0,
      'owner', owner, 'pipeline', pipeline, 'pipelineVersion', pipeline_version, 'nodeGroup', node_group,
      'event', event, 'state', ARGV[i + 2])
    queued[#queued + 1] = id
    results[i] = 'OK'
  end
end
if #queued > 0 then
  redis.call('RPUSH', queue, unpack(queued))
  count('started', #queued)
end
return results
"""

# args: store id, how many, what the tokens begin with
# returns: items (id, version, seven small fields, token), one state per item; nothing when the queue is empty
TAKE = """
local lease_end = now + 30000
local items, reply, leases, starts = {}, {false}, {}, {}
for i, id in ipairs(redis.call('LPOP', queue, ARGV[2]) or {}) do
  local key = 'stateH:{raw}:' .. id
  local fields = redis.call('HMGET', key, 'phase', 'version', 'owner', 'pipeline', 'pipelineVersion',
    'nodeGroup', 'event', 'attempt', 'deadlineMs', 'verdict', 'state')
  if fields[1] == 'queued' then
    local token, version = ARGV[3] .. i, math.max(fields[2] + 1, now)
    redis.call('HSET', key, 'phase', 'running', 'token', token, 'version', version)
    local n = #items + 1
    leases[2 * n - 1], leases[2 * n] = lease_end, id
    starts[2 * n - 1], starts[2 * n] = now, id
    reply[n + 1] = fields[11]
    fields[1], fields[2], fields[11] = id, version, token
    items[n] = fields
  end
end
if #items == 0 then return {} end
redis.call('ZADD', processing, unpack(leases))
redis.call('ZADD', running, unpack(starts))
reply[1] = cmsgpack.pack(items)
return reply
"""

# args: store id, items (id, token, status, output), one state per item
# returns: one result per item
COMPLETE = """
local done, due, by_status, results = {}, {}, {}, {}
for i, item in ipairs(cmsgpack.unpack(ARGV[2])) do
  local id, token, status, output = unpack(item)
  local key = 'stateH:{raw}:' .. id
  local held = redis.call('HMGET', key, 'token', 'version')
  if held[1] ~= token then
    results[i] = 'STALE_TOKEN'
  else
    redis.call('HSET', key, 'phase', 'complete', 'status', status, 'completedMs', now, 'output', output,
      'version', math.max(held[2] + 1, now), 'token', '', 'lastToken', token, 'state', ARGV[i + 2])
    local n = #done + 1
    done[n] = id
    due[2 * n - 1], due[2 * n] = now + 2000, id
    by_status[status] = (by_status[status] or 0) + 1
    results[i] = 'OK'
  end
end
if #done > 0 then
  redis.call('ZREM', processing, unpack(done))
  redis.call('ZREM', running, unpack(done))
  redis.call('ZADD', to_archive, unpack(due))
  for status, n in pairs(by_status) do count('completed:' .. status, n) end
  redis.call('SPUBLISH', 'completedC:{raw}', cmsgpack.pack(done))
end
return results
"""


class Limit(NamedTuple):
    """What was reached, and what it cost in CPU time on each side."""

    items_per_s: float
    client_us: float
    server_us: float


class Scripts(NamedTuple):
    """The digests under which a server knows the scripts."""

    enqueue: str
    take: str
    complete: str


async def enqueue_limit(url: str, total: int) -> float:
    """Items per second of wall time that one connection can queue."""
    return (await measure_enqueue(url, total)).items_per_s


async def drain_limit(url: str, total: int, *, overlapped: bool = False) -> float:
    """Items per second that one process can take and complete; overlapped: two calls are in flight."""
    return (await measure_drain(url, total, overlapped=overlapped)).items_per_s


async def measure_enqueue(url: str, total: int) -> Limit:
    async with _connect(url) as store, _own_keys(store) as scripts:
        limit = await _measure(store, total, _enqueue(store, scripts, total))
        assert await store.llen(QUEUE) == total, "what was enqueued is not in the queue"
        return limit


async def measure_drain(url: str, total: int, *, overlapped: bool = False) -> Limit:
    async with _connect(url) as store, _own_keys(store) as scripts:
        await _enqueue(store, scripts, total)
        calls_in_flight = 2 if overlapped else 1
        limit = await _measure(store, total, _drain_all(store, scripts, calls_in_flight))
        left = await store.llen(QUEUE) + await store.zcard(PROCESSING) + await store.zcard(RUNNING)
        assert left == 0, "a drained store still has work"
        assert await store.zcard(TO_ARCHIVE) == total, "what was completed is not marked for the archive"
        return limit


async def _enqueue(store: Redis, scripts: Scripts, total: int) -> int:
    queued = 0
    for start in range(0, total, BATCH_SIZE):
        ids = [f"tx-0-{number:020d}" for number in range(start, min(start + BATCH_SIZE, total))]
        items = [(tx_id, "owner-1", "three-steps", 1, "group-1", '{"type":"start"}') for tx_id in ids]
        states = [STATE_QUEUED] * len(ids)
        results = await store.evalsha(scripts.enqueue, *_arguments(msgspec.msgpack.encode(items), *states))
        queued += results.count(b"OK")
    return queued


async def _drain_all(store: Redis, scripts: Scripts, calls_in_flight: int) -> int:
    """Each drain takes a connection of its own out of the pool."""
    drains = (_drain(store, scripts, node=f"node-{n}") for n in range(calls_in_flight))
    return sum(await asyncio.gather(*drains))


async def _drain(store: Redis, scripts: Scripts, *, node: str) -> int:
    """Take and complete until the queue is empty; one round trip per batch."""
    completed = 0
    taken: list[Any] = []
    turns = itertools.count()
    while True:
        pipeline = store.pipeline(transaction=False)
        if taken:
            items = [(item[0], item[10], "success", OUTPUT) for item in taken]
            states = [STATE_COMPLETE] * len(items)
            pipeline.evalsha(scripts.complete, *_arguments(msgspec.msgpack.encode(items), *states))
        pipeline.evalsha(scripts.take, *_arguments(BATCH_SIZE, f"{node}:{next(turns)}:"))
        *results, reply = await pipeline.execute()
        if results:
            completed += results[0].count(b"OK")
        if not reply:
            return completed
        taken = msgspec.msgpack.decode(reply[0])


def _arguments(*own: Any) -> tuple[Any, ...]:
    """What EVALSHA gets after the digest."""
    return (len(KEYS), *KEYS, STORE_ID, *own)


async def _measure(store: Redis, total: int, work: Awaitable[int]) -> Limit:
    server_s, client_s, wall_s = await _server_cpu_s(store), time.process_time(), time.perf_counter()
    done = await work
    wall_s, client_s = time.perf_counter() - wall_s, time.process_time() - client_s
    server_s = await _server_cpu_s(store) - server_s
    assert done == total, f"{done} of {total} items were done"
    return Limit(total / wall_s, client_s / total * 1e6, server_s / total * 1e6)


async def _server_cpu_s(store: Redis) -> float:
    info = await store.info("cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"])


def _connect(url: str) -> Redis:
    return Redis.from_url(url, retry=NO_RETRY)


@asynccontextmanager
async def _own_keys(store: Redis) -> AsyncIterator[Scripts]:
    """An empty {raw} partition with its scripts loaded; nothing of it is left behind."""
    await _remove_own_keys(store)
    try:
        await store.hset(META, "storeId", STORE_ID)
        yield Scripts(*[await store.script_load(PRELUDE + body) for body in (ENQUEUE, TAKE, COMPLETE)])
    finally:
        await _remove_own_keys(store)


async def _remove_own_keys(store: Redis) -> None:
    cursor = -1
    while cursor != 0:
        cursor, keys = await store.scan(max(cursor, 0), match=EVERY_KEY, count=1000)
        if keys:
            await store.unlink(*keys)


async def one_repeat(url: str, total: int) -> dict[str, Limit]:
    return {
        "enqueue": await measure_enqueue(url, total),
        "drain": await measure_drain(url, total),
        "drain, overlapped": await measure_drain(url, total, overlapped=True),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.raw", description=__doc__.splitlines()[0])
    parser.add_argument("--total", type=int, default=20_000, help="items per measurement")
    parser.add_argument("--server", help="server binary (default: the one that datp dev would take)")
    options = parser.parse_args()
    engine = identify(Path(shutil.which(options.server) or options.server)) if options.server else find_engine()

    repeats = []
    for _ in range(REPEATS):
        # A new server each time: the append-only file stays small.
        with (
            tempfile.TemporaryDirectory(prefix="datp-raw-") as directory,
            EmbeddedServer(Path(directory), binary=engine.binary, options=SERVER_OPTIONS) as server,
        ):
            apart(server.pid)
            repeats.append(uvloop.run(one_repeat(server.url, options.total)))

    packages = ", ".join(f"{name} {version(name)}" for name in ("redis", "hiredis", "msgspec", "uvloop"))
    print(f"{engine}; {packages}; Python {platform.python_version()}")
    print(f"{options.total} items in batches of {BATCH_SIZE}, medians of {REPEATS} repeats")
    print(f"{'':20}{'items/s':>10}{'slowest':>10}{'fastest':>10}{'client µs':>11}{'server µs':>11}")
    for name in repeats[0]:
        rates, client_us, server_us = zip(*(repeat[name] for repeat in repeats), strict=True)
        print(
            f"{name:20}{statistics.median(rates):10,.0f}{min(rates):10,.0f}{max(rates):10,.0f}"
            f"{statistics.median(client_us):11.1f}{statistics.median(server_us):11.1f}"
        )


if __name__ == "__main__":
    main()
