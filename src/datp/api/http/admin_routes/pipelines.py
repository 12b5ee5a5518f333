"""Pipelines: which there are, their versions, and which one new transactions take."""

from typing import Annotated, Any

import msgspec

from datp.api.http.admin_routes.common import ADMIN, OPERATOR, Done, Reason, act
from datp.api.http.api import Api
from datp.api.http.routes import Answer, Call, Route, Words
from datp.errors import BadDefinition, Conflict, DatabaseError, NotFound
from datp.model.pipeline import PipelineDefinition, parse_pipeline
from datp.model.values import shown


class OnePipeline(Words, frozen=True):
    pipeline: Annotated[str, msgspec.Meta(description="The pipeline; a / in its name is written %2F.")]


class OneVersion(Words, frozen=True):
    pipeline: Annotated[str, msgspec.Meta(description="The pipeline; a / in its name is written %2F.")]
    version: Annotated[str, msgspec.Meta(description="The version.")]


class Push(Reason, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A version of a pipeline."""

    definition: dict[str, Any]
    """As in a pipeline's file."""
    activate: bool = True
    """New transactions take it from now on."""


class Activate(Reason, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which version new transactions are to take."""

    version: str


class Pushed(msgspec.Struct, frozen=True, rename="camel"):
    """The version that was saved."""

    pipeline: str
    version: str
    is_new: bool
    is_activated: bool


class PipelineBrief(msgspec.Struct, frozen=True, rename="camel"):
    """A pipeline, as its active version says."""

    name: str
    active_version: str
    """'' for none."""
    description: str
    node_group: str
    is_transaction_type: bool
    steps: int


class Pipelines(msgspec.Struct, frozen=True, rename="camel"):
    """All that are known, by name."""

    pipelines: list[PipelineBrief]


class PipelineVersions(msgspec.Struct, frozen=True, rename="camel"):
    """The versions of a pipeline."""

    pipeline: str
    active_version: str
    versions: list[str]


class PipelineVersion(msgspec.Struct, frozen=True, rename="camel"):
    """A version, whole."""

    pipeline: str
    version: str
    is_active: bool
    definition: Any
    """As in a pipeline's file: it can be pushed again."""


class PipelineRoutes:
    """The routes, over one API."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def routes(self) -> list[Route]:
        looking: dict[str, Any] = {**OPERATOR, "tag": "operators: pipelines", "method": "GET"}
        acting: dict[str, Any] = {**ADMIN, "tag": "operators: pipelines", "method": "POST"}
        one = "/v1/admin/pipelines/{pipeline}"
        return [
            Route(path="/v1/admin/pipelines", handler=self.admin_list_pipelines, **looking),
            Route(path=one, handler=self.admin_show_pipeline, refusals=(NotFound,), **looking),
            Route(path=f"{one}/versions", handler=self.admin_list_versions, refusals=(NotFound,), **looking),
            Route(path=f"{one}/versions/{{version}}", handler=self.admin_show_version, refusals=(NotFound,), **looking),
            Route(
                path="/v1/admin/pipelines",
                handler=self.admin_push_pipeline,
                statuses={200: "The version was there already.", 201: "It is a new version."},
                refusals=(BadDefinition, Conflict, DatabaseError),
                **acting,
            ),
            Route(
                path=f"{one}/activate",
                handler=self.admin_activate_pipeline,
                refusals=(NotFound, Conflict, DatabaseError),
                **acting,
            ),
        ]

    async def admin_list_pipelines(self, call: Call) -> Answer[Pipelines]:
        """List the pipelines, with their active versions."""
        definitions = self._api.definitions
        found = []
        for name, version in sorted((await definitions.pipelines()).items()):
            if not version:
                found.append(PipelineBrief(name, "", "", "", False, 0))
                continue
            one = await definitions.definition(name, version)
            found.append(
                PipelineBrief(name, version, one.description, one.group, one.is_transaction_type, len(one.steps))
            )
        return Answer(Pipelines(found))

    async def admin_show_pipeline(self, call: Call, path: OnePipeline) -> Answer[PipelineVersion]:
        """Show the active version of a pipeline."""
        return Answer(await self._version(path.pipeline, ""))

    async def admin_list_versions(self, call: Call, path: OnePipeline) -> Answer[PipelineVersions]:
        """List the versions of a pipeline that are stored."""
        active = (await self._api.definitions.pipelines()).get(path.pipeline, "")
        async with self._api.store.turn() as turn:
            reply = turn.list_versions([path.pipeline])
        [versions] = reply.value
        if not versions:
            raise NotFound(f"There is no pipeline {shown(path.pipeline)}")
        return Answer(PipelineVersions(path.pipeline, active, sorted(versions)))

    async def admin_show_version(self, call: Call, path: OneVersion) -> Answer[PipelineVersion]:
        """Show a version of a pipeline."""
        return Answer(await self._version(path.pipeline, path.version))

    async def _version(self, name: str, version: str) -> PipelineVersion:
        active = (await self._api.definitions.pipelines()).get(name, "")
        one = await self._api.definitions.definition(name, version)
        return PipelineVersion(name, one.version, one.version == active, _whole(one))

    async def admin_push_pipeline(self, call: Call, body: Push) -> Answer[Pushed]:
        """Save a version of a pipeline; it is named by a hash of what it says, and never changes."""
        one = parse_pipeline(body.definition, self._api.settings)
        is_new = await self._api.operations.save_pipeline(act(call, body.reason), one, activate=body.activate)
        return Answer(Pushed(one.name, one.version, is_new, body.activate), 201 if is_new else 200)

    async def admin_activate_pipeline(self, call: Call, path: OnePipeline, body: Activate) -> Answer[Done]:
        """Have new transactions take this version from now on."""
        await self._api.operations.activate_pipeline(act(call, body.reason), path.pipeline, body.version)
        return Answer(Done("OK"))


def _whole(definition: PipelineDefinition) -> Any:
    return msgspec.to_builtins(definition)
