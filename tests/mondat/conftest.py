"""A `datp dev` to look at, and a browser to look with."""

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from cli.processes import DatpProcess
from playwright.async_api import Browser, Page, async_playwright

NO_SKIP = os.environ.get("DATP_TEST_NO_SKIP") == "1"
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="session")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    process = DatpProcess("dev", "--port", "0", "--json", cwd=tmp_path_factory.mktemp("mondat"))
    yield process.json_line()
    assert process.stop() == 0, process.errors()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        message = "There is no chromium; Debian has it: apt-get install chromium"
        assert not NO_SKIP, message
        pytest.skip(message)
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=chromium, args=list(QUIET))
        yield opened
        await opened.close()


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A page, which must not complain in its console, nor ask anybody but us."""
    opened = await browser.new_page()
    complaints: list[str] = []
    opened.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda asked: None if "127.0.0.1" in asked.url else complaints.append(asked.url))
    yield opened
    assert complaints == []
