"""Tests of transfers run on every database that we claim, and the books are checked after each."""

from collections.abc import AsyncIterator

import pytest
from bank import Bank

from datp.archive.database import Database


@pytest.fixture
async def bank(database: Database) -> AsyncIterator[Bank]:
    opened = await Bank(database).open()
    yield opened
    await opened.check_books()
