"""The pytest plugin: the fixtures `datp_server`, for the session, and `datp`, a lab for each test.

pytest finds it by entry point; it imports nothing of DATP until a test asks for a fixture.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from datp.testing import Lab, LabServer


@pytest.fixture(scope="session")
def datp_server() -> "Iterator[LabServer]":
    """The embedded server under the labs of this session."""
    from datp.testing import LabServer

    with LabServer() as server:
        yield server


@pytest.fixture
def datp(request: pytest.FixtureRequest, datp_server: "LabServer") -> "Iterator[Lab]":
    """A lab for this test: an empty store, a held clock, and the step types of installed packages.

    What it leaves must be in order; a test that failed is not asked.
    """
    from datp.testing import Lab

    with Lab(datp_server) as lab:
        yield lab
