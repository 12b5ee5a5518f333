"""Credentials as a test gives them: nothing is encrypted, and nothing is kept."""

from datp.errors import NotFound
from datp.model.credential import Credential


class GivenCredentials:
    """By name, for whatever owner."""

    def __init__(self) -> None:
        self.given: dict[str, Credential] = {}

    async def find(self, name: str, owner: str) -> Credential:
        if name not in self.given:
            raise NotFound(f"There is no credential {name}; a test gives one with: lab.credential({name!r}, ...)")
        return self.given[name]
