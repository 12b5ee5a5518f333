"""What clients may start."""

from typing import Any

import msgspec

from datp.api.http.api import Api
from datp.api.http.routes import Answer, Call, Route
from datp.model.api_key import Role


class TransactionType(msgspec.Struct, frozen=True, rename="camel"):
    """A pipeline that clients may start."""

    name: str
    description: str
    version: str
    """The one that a start takes now."""
    deadline_ms: int | None
    """How long a transaction may take in all, unless its start says otherwise; null: for ever."""
    input_schema: dict[str, Any] | bool | None
    """What an input must be (JSON Schema); null: anything."""


class TransactionTypes(msgspec.Struct, frozen=True, rename="camel"):
    """All of them, by name."""

    transaction_types: list[TransactionType]


class TypeRoutes:
    """The route, over one API."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/v1/transaction-types",
                handler=self.list_transaction_types,
                role=Role.CLIENT,
                tag="transaction types",
            )
        ]

    async def list_transaction_types(self, call: Call) -> Answer[TransactionTypes]:
        """List what may be started, with what each wants as its input."""
        definitions = self._api.definitions
        active = {name: version for name, version in (await definitions.pipelines()).items() if version}
        await definitions.load(active.items())
        known = [definitions.pipeline(name, version) for name, version in sorted(active.items())]
        return Answer(
            TransactionTypes(
                [
                    TransactionType(
                        one.name,
                        one.description,
                        active[one.name],
                        one.deadline_ms or None,
                        one.input_schema,
                    )
                    for one in known
                    if one.is_transaction_type
                ]
            )
        )
