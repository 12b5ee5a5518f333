"""How fast HTTP is: starts beside an empty handler that parses the same body, what a waiter costs beside one that
awaits an event, and how long after the end of a transaction its waiter is answered.

The server is a process of its own, and so are the clients and whoever completes transactions. What is compared with
stands on the same server, and is measured in turns with it.

    python -m bench.http [starts] [waiters] [told] [latency]
"""

import asyncio
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from datp.api.access import DEVELOPER
from datp.api.http.all_routes import api_routes, with_description
from datp.api.http.api import Api
from datp.api.http.app import HttpApp, Receive, Scope, Send
from datp.api.http.client_routes.transactions import StartBody
from datp.api.http.door import Door
from datp.api.http.routes import Answer, Call, Route
from datp.api.http.server import HttpServer
from datp.api.transactions import StartRequest
from datp.cli.serving import listen
from datp.definitions import Definitions
from datp.embedded import EmbeddedServer
from datp.hotstore.store import Completion, Store
from datp.model.api_key import Role
from datp.model.pipeline import parse_pipeline
from datp.settings import Settings
from datp.steps.registry import load_registry
from datp.worker.node import Node

PARTITIONS = 1
CONNECTIONS = 64
ROUND_S = 2.5
ROUNDS = 5

NAMES = ["amount", "currency", "payee", "reference", "purpose", "from", "to", "channel", "device", "session"]
INPUT = {"order": {name: f"value of {name}" * 3 for name in NAMES}, "lines": list(range(60))}
BODY = json.dumps({"transactionType": "bench", "input": INPUT, "metadata": {"mine": "1"}}).encode()


# ── the server ───────────────────────────────────────────────────────────────────────────────────────────────────


async def empty(call: Call, body: StartBody) -> Answer[None]:
    """Nothing: it was let in, and its body was read."""
    return Answer(b"{}")


async def serve(store_url: str, with_node: str = "") -> None:
    """The API, and beside it handlers that do nothing but what any must."""
    settings = Settings(
        store_url=store_url, partitions=PARTITIONS, longpolls_max=50_000, longpolls_per_owner_max=50_000
    )
    api = Api(settings, without_key=DEVELOPER)
    await api.open()
    empty_route = Route(method="POST", path="/v1/empty", handler=empty, role=Role.CLIENT, tag="bench")
    app = HttpApp([*with_description(api_routes(api)), empty_route], Door(api.access), api.load)
    decode = msgspec.json.Decoder(StartBody).decode
    never = asyncio.Event()

    async def in_starlette(request: Request) -> Response:
        decode(await request.body())
        return Response(b"{}", media_type="application/json")

    starlette = Starlette(routes=[StarletteRoute("/starlette", in_starlette, methods=["POST"])])

    async def bare(send: Send, body: bytes) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def serve_one(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path == "/empty":
            decode((await receive())["body"])
            await bare(send, b"{}")
        elif path == "/starlette":
            await starlette(scope, receive, send)
        elif path == "/wait":
            await receive()
            await never.wait()
            await bare(send, b"{}")
        else:
            await app(scope, receive, send)

    listener = listen("127.0.0.1", 0)
    listener.listen(10_000)
    server = HttpServer(serve_one, listener, grace_ms=1_000)
    server.start()
    node = None
    if with_node:
        node = Node(settings, load_registry(""), url=store_url)
        await node.start()
    print(listener.getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    never.set()
    api.answer_waiters()
    await server.stop()
    if node is not None:
        await node.stop()
    await api.close()


# ── clients ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Asking(asyncio.Protocol):
    """One connection that asks, and tells when a whole answer has come; no library, for the client must not limit."""

    def __init__(self, answered: Any) -> None:
        self.answered = answered
        self.transport: Any = None
        self._received = b""
        self._wanted = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._wanted:
            head, end, _ = self._received.partition(b"\r\n\r\n")
            if not end:
                return
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
            self._wanted = len(head) + 4 + int(length)
        if len(self._received) >= self._wanted:
            answer, self._received, self._wanted = self._received, b"", 0
            self.answered(self, answer)


def request(method: str, path: str, body: bytes = b"") -> bytes:
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def connect(port: int, answered: Any) -> Asking:
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(lambda: Asking(answered), "127.0.0.1", port)
    return protocol


async def load(port: str, path: str, expected: str) -> None:
    """So many answers a second, asked for as fast as they come."""
    wanted = f"HTTP/1.1 {expected}".encode()
    said = request("POST", path, BODY)
    count = 0
    wrong: list[bytes] = []
    ends_at = 0.0

    def answered(connection: Asking, answer: bytes) -> None:
        nonlocal count
        if not answer.startswith(wanted):
            wrong.append(answer)
        count += 1
        if time.perf_counter() < ends_at:
            connection.transport.write(said)

    connections = [await connect(int(port), answered) for _ in range(CONNECTIONS)]
    began = time.perf_counter()
    ends_at = began + ROUND_S
    for connection in connections:
        connection.transport.write(said)
    await asyncio.sleep(ROUND_S)
    took = time.perf_counter() - began
    print(json.dumps({"rate": count / took, "wrong": [one.decode() for one in wrong[:1]]}))


async def hold(port: str, paths_file: str, count: str) -> None:
    """So many wait; what is told on stdin is how many more, and when each was answered is told at the end."""
    paths = Path(paths_file).read_text().split()  # noqa: ASYNC240  # nothing else runs here
    at: dict[str, float] = {}
    waiting: dict[Asking, str] = {}

    def answered(connection: Asking, answer: bytes) -> None:
        assert answer.startswith(b"HTTP/1.1 200"), answer
        at[waiting[connection]] = time.monotonic()

    loop = asyncio.get_running_loop()
    done = 0
    while line := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        if line == "answers":
            while len(at) < len(waiting):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            print(json.dumps(at), flush=True)
            continue
        upto = int(line)
        while done < upto:
            path = paths[done % len(paths)]
            connection = await connect(int(port), answered)
            waiting[connection] = path
            connection.transport.write(request("GET", path))
            done += 1
            if done % 100 == 0:
                await asyncio.sleep(0)
        print("held", flush=True)


async def complete(store_url: str, rate: str, count: str) -> None:
    """Completes what is queued, so many a second, as a node would: one call every ten milliseconds."""
    settings = Settings(store_url=store_url, partitions=PARTITIONS)
    store = Store(store_url, settings)
    await store.open()
    each = int(rate) // 100
    at: dict[str, float] = {}
    turn_number = 0
    begins_at = time.monotonic() + 0.2
    while len(at) < int(count):
        turn_number += 1
        async with store.turn() as turn:
            taken = turn.dequeue(0, group="main", node="bench", lane="a", turn=turn_number, want=each, alone=False)
        runs = taken.value.taken
        if not runs:
            break
        await asyncio.sleep(max(0.0, begins_at + turn_number / 100 - time.monotonic()))
        now = time.monotonic()
        at.update((run.tx_id, now) for run in runs)
        async with store.turn() as turn:
            turn.complete(
                [Completion(run.tx_id, run.token, "success", "", '{"done":true}', "") for run in runs],
                [b'{"flow":[]}'] * len(runs),
            )
    await store.close()
    print(json.dumps(at))


# ── what is measured ─────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process of this file's; it ends with its input."""
    command = [sys.executable, "-m", "bench.http", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.stdin.close()  # type: ignore[union-attr]
        process.wait(30)


def told(process: subprocess.Popen[str], line: str = "") -> str:
    """What it says next, to this."""
    assert process.stdin is not None and process.stdout is not None
    if line:
        process.stdin.write(line + "\n")
        process.stdin.flush()
    return process.stdout.readline().strip()


def ran(*arguments: str) -> Any:
    with running(*arguments) as process:
        assert process.stdout is not None
        return json.loads(process.stdout.read())


def rss_kib(pid: int) -> int:
    """Of the process, now."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


async def prepare(url: str) -> None:
    settings = Settings(store_url=url, partitions=PARTITIONS)
    store = Store(url, settings)
    await store.open(create=True)
    definitions = Definitions(store)
    await definitions.save_group("main", {})
    pipeline = {"name": "bench", "steps": [{"id": "one", "step": "util/echo"}]}
    await definitions.save(parse_pipeline(pipeline, settings), activate=True)
    await store.close()


async def started(url: str, count: int) -> list[str]:
    """Ids of transactions that are queued, for nobody to take."""
    from datp.api.transactions import Transactions

    store = Store(url, Settings(store_url=url, partitions=PARTITIONS))
    await store.open()
    transactions = Transactions(store, Definitions(store))
    ids: list[str] = []
    while len(ids) < count:
        outcomes = await transactions.start_batch("dev", [StartRequest("bench", input=1)] * 1_000)
        ids += [outcome.tx_id for outcome in outcomes]  # type: ignore[union-attr]
    await store.close()
    return ids[:count]


@contextlib.contextmanager
def a_store() -> Iterator[EmbeddedServer]:
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedServer(Path(folder) / "store")
        server.start()
        try:
            uvloop.run(prepare(server.url))
            yield server
        finally:
            server.stop()


def measure_starts() -> dict[str, float]:
    """Starts, in turns with handlers that only parse the body: bare, a route of ours, and one of Starlette's.

    A fresh store for each round, so that none has more to keep than another.
    """
    asked = {
        "bare": ("/empty", "200"),
        "empty": ("/v1/empty", "200"),
        "starlette": ("/starlette", "200"),
        "start": ("/v1/transactions", "202"),
    }
    rates: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(ROUNDS):
        with a_store() as store, running("serve", store.url) as server:
            port = told(server)
            for name, (path, status) in asked.items():
                said = ran("load", port, path, status)
                assert not said["wrong"], said["wrong"]
                rates[name].append(said["rate"])
    figures = {f"{name} /s": statistics.median(rate) for name, rate in rates.items()}
    for other in ("bare", "empty", "starlette"):
        shares = (start / one for start, one in zip(rates["start"], rates[other], strict=True))
        figures[f"start : {other} %"] = 100 * statistics.median(shares)
    return figures


def measure_waiters() -> dict[str, float]:
    """Memory of each waiter, ours and bare, from 1 000 to 10 000; the two on servers of their own, alike."""
    figures: dict[str, float] = {}
    with a_store() as store, tempfile.TemporaryDirectory() as folder:
        ids = uvloop.run(started(store.url, 10_000))
        for name, paths in (
            ("bare", ["/wait"]),
            ("ours", [f"/v1/transactions/{tx_id}?wait=60" for tx_id in ids]),
        ):
            listed = Path(folder) / name
            listed.write_text("\n".join(paths))
            with running("serve", store.url) as server, running("hold", told(server), str(listed), "0") as holding:
                sizes = {}
                for count in (200, 1_000, 10_000):  # the first warm up what is made once
                    assert told(holding, str(count)) == "held"
                    time.sleep(1.0)
                    sizes[count] = rss_kib(server.pid)
                figures[f"{name} KiB each, to 1 000"] = (sizes[1_000] - sizes[200]) / 800
                figures[f"{name} KiB each, 1 000 to 10 000"] = (sizes[10_000] - sizes[1_000]) / 9_000
                os.kill(holding.pid, 9)
    figures["ours : bare"] = figures["ours KiB each, 1 000 to 10 000"] / figures["bare KiB each, 1 000 to 10 000"]
    return figures


def measure_told(waiters: int = 10_000, rate: int = 1_000) -> dict[str, float]:
    """From the call that completes a transaction to its waiter's answer, at so many a second."""
    with a_store() as store, tempfile.TemporaryDirectory() as folder:
        ids = uvloop.run(started(store.url, waiters))
        listed = Path(folder) / "paths"
        listed.write_text("\n".join(f"/v1/transactions/{tx_id}?wait=60" for tx_id in ids))
        with running("serve", store.url) as server, running("hold", told(server), str(listed), "0") as holding:
            assert told(holding, str(waiters)) == "held"
            time.sleep(1.0)
            completed = ran("complete", store.url, str(rate), str(waiters))
            answered = json.loads(told(holding, "answers"))
    took = sorted((at - completed[path.partition("?")[0].rpartition("/")[2]]) * 1000 for path, at in answered.items())
    spent = max(completed.values()) - min(completed.values())
    return {
        "completions /s": len(completed) / spent,
        "p50 ms": statistics.median(took),
        "p99 ms": took[int(len(took) * 0.99)],
        "max ms": took[-1],
    }


def measure_latency(total: int = 300) -> dict[str, float]:
    """One at a time on an idle engine: from the request to the final reply; the node is in the server's process."""

    async def ask(port: int) -> list[float]:
        body = json.dumps({"transactionType": "bench", "input": INPUT, "wait": 10}).encode()
        said = request("POST", "/v1/transactions", body)
        came: asyncio.Queue[bytes] = asyncio.Queue()
        connection = await connect(port, lambda _, answer: came.put_nowait(answer))
        took = []
        for _ in range(total):
            began = time.perf_counter()
            connection.transport.write(said)
            answer = await came.get()
            took.append((time.perf_counter() - began) * 1000)
            assert b'"status":"success"' in answer, answer
            await asyncio.sleep(0.005)
        return took

    with a_store() as store, running("serve", store.url, "node") as server:
        took = sorted(uvloop.run(ask(int(told(server))))[20:])
    return {"p50 ms": statistics.median(took), "p99 ms": took[int(len(took) * 0.99)]}


MEASURES = {
    "starts": measure_starts,
    "waiters": measure_waiters,
    "told": measure_told,
    "latency": measure_latency,
}
PROCESSES = {"serve": serve, "load": load, "hold": hold, "complete": complete}


def main(names: list[str]) -> dict[str, dict[str, float]]:
    figures = {}
    for name in names or list(MEASURES):
        figures[name] = MEASURES[name]()
        for what, value in figures[name].items():
            print(f"{name:8} {what:30} {value:10.2f}", flush=True)
    return figures


if __name__ == "__main__":
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if sys.argv[1:2] and sys.argv[1] in PROCESSES:
        uvloop.run(PROCESSES[sys.argv[1]](*sys.argv[2:]))
    else:
        main(sys.argv[1:])
