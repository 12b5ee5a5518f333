"""Nodes as processes, beside an engine of the test's own."""

import asyncio
from collections import defaultdict
from dataclasses import fields
from pathlib import Path

from cli.processes import DatpProcess
from worker.support import Engine

from datp.settings import Settings, environment_variable

HERE = Path(__file__).parent


class Processes:
    """`datp` processes that share the engine's store, database and settings, and a file of effects."""

    def __init__(self, eng: Engine, directory: Path) -> None:
        self.effects = directory / "effects"
        self.effects.touch()
        self._directory = directory
        changed = [field.name for field in fields(Settings) if getattr(eng.settings, field.name) != field.default]
        self._environment = {
            **{
                environment_variable(name): str(getattr(eng.settings, name)) for name in changed if name != "given_here"
            },
            "DATP_STORE_URL": eng.store.url,
            "EFFECTS": str(self.effects),
            "PYTHONPATH": str(HERE),
        }
        self.running: list[DatpProcess] = []

    def start(self, *arguments: str) -> DatpProcess:
        process = DatpProcess(*arguments, cwd=self._directory, environment=self._environment)
        self.running.append(process)
        return process

    async def nodes(self, count: int, roles: str = "worker,wakeup,archive") -> list[DatpProcess]:
        """Nodes that run."""
        started = [self.start("node", "--json", "--roles", roles, "--steps", "effects") for _ in range(count)]
        for process in started:
            await asyncio.to_thread(process.json_line)
        return started

    def seen(self) -> dict[str, list[tuple[float, str]]]:
        """txId → when a step had its effect, and its key."""
        found: dict[str, list[tuple[float, str]]] = defaultdict(list)
        for line in self.effects.read_text().splitlines():
            at, tx_id, key = line.split()
            found[tx_id].append((float(at), key))
        return found
