"""`datp` as its users run it: as a process that prints, is sent signals, and ends."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

WITHIN_S = 20.0


class DatpProcess:
    """A `datp` that runs on; its output is waited for line by line."""

    def __init__(self, *arguments: str, cwd: Path, environment: dict[str, str] | None = None) -> None:
        self._arguments = " ".join(arguments)
        self._errors = (cwd / f"stderr-{time.monotonic_ns()}").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "datp", *arguments],
            cwd=cwd,
            env=clean_environment(environment),
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self) -> str:
        """The next line that it prints."""
        line = self._lines.get(timeout=WITHIN_S)
        assert line is not None, f"it ended with {self._process.wait()}: {self.errors()}"
        return line

    def json_line(self) -> dict[str, Any]:
        """The next line, which is JSON."""
        document: dict[str, Any] = json.loads(self.line())
        return document

    def line_with(self, text: str) -> str:
        """The next line that contains the text."""
        while text not in (line := self.line()):
            pass
        return line

    def errors(self) -> str:
        """What it has written to stderr so far."""
        return Path(self._errors.name).read_text()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        code = self._process.wait(WITHIN_S)
        self._reader.join(WITHIN_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()
        # pytest shows it with a failure.
        sys.stdout.write(f"datp {self._arguments} ended with {code}; it said:\n{self.errors()}\n")
        return code

    def stop(self) -> int:
        """Told to stop; its exit code."""
        if self._process.poll() is None:
            self.send(signal.SIGTERM)
        return self.ended()

    def send_interrupt(self) -> int:
        """Ctrl-C; its exit code."""
        if self._process.poll() is None:
            self.send(signal.SIGINT)
        return self.ended()

    def kill(self) -> int:
        """Ended without a word, as a crash would."""
        self.send(signal.SIGKILL)
        return self.ended()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)


def clean_environment(more: dict[str, str] | None = None) -> dict[str, str]:
    """The environment, without settings that would decide for the test."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith("DATP_")}, **(more or {})}
