"""The tutorial, typed in as it stands: from an empty folder to a transaction that has ended."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import wait_until

PAGE = Path(__file__).parents[2] / "docs/tutorial.md"
BLOCK = re.compile(r"^```sh( in the background)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)

COMMANDS_MAX = 15
LINES_MAX = 80


def blocks() -> list[tuple[bool, str]]:
    """What is typed: in the background or not, and the command."""
    return [(bool(background), text) for background, text in BLOCK.findall(PAGE.read_text())]


class Terminal:
    """Where it is typed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._running: list[subprocess.Popen[bytes]] = []
        said = {name: value for name, value in os.environ.items() if not name.startswith("DATP_")}
        self._environment = {**said, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def type(self, text: str) -> str:
        """What it prints; it must succeed."""
        done = subprocess.run(
            ["bash", "-euc", text],
            cwd=self.directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def leave_running(self, text: str) -> None:
        self._running.append(
            subprocess.Popen(
                ["bash", "-euc", f"exec env {text}"],
                cwd=self.directory,
                env=self._environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    def close(self) -> None:
        for process in self._running:
            process.send_signal(signal.SIGINT)
            process.wait(30)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    opened.close()


def test_it_is_as_short_as_it_says() -> None:
    typed = [text for _, text in blocks()]
    assert len(typed) <= COMMANDS_MAX
    lines = [line for text in typed for line in text.splitlines() if line.strip()]
    assert len(lines) <= LINES_MAX, f"{len(lines)} lines"


def test_it_does_what_it_says(terminal: Terminal) -> None:
    def answers(command: str) -> bool:
        try:
            terminal.type(command)
        except AssertionError:
            return False
        return True

    printed: dict[str, str] = {}
    for in_background, text in blocks():
        if in_background:
            terminal.leave_running(text.strip())
            # Who types sees that it runs.
            ready = (
                "datp pipeline list"
                if "datp dev" in text
                else "python3 -c 'import urllib.request as r; r.urlopen(\"http://127.0.0.1:8427/\")'"
            )
            wait_until(lambda ready=ready: answers(ready), f"{text} runs", within_s=30)
            continue
        printed[text] = terminal.type(text)
        if text.startswith("mkdir"):
            terminal.directory /= "trip"
    tested = next(out for text, out in printed.items() if "pipeline test" in text)
    assert tested.count(" ok ") == 3

    def reply() -> dict[str, str]:
        found: dict[str, str] = json.loads(terminal.type("datp show ada-1 --json"))
        return found

    wait_until(lambda: "success" in json.dumps(reply()), "the trip has ended", within_s=20)
    flow = terminal.type("datp show ada-1 --flow")
    for name in ("reserve", "quotes", "decide", "approve"):
        assert name in flow
