"""The life of pipelines: drafts, versions, activation, differences, exports, test cases, and an end."""

from typing import Annotated, Any

import msgspec

from datp.api.http.admin_routes.common import ADMIN, OPERATOR, Done, Reason, ReasonText, act
from datp.api.http.api import Api
from datp.api.http.routes import Answer, Call, Route, Words
from datp.api.pipeline_tests import PipelineTester
from datp.api.pipelines import DRAFT, PipelineDescribed, Pipelines, Pushed, VersionDescribed
from datp.errors import BadDefinition, Conflict, DatabaseError, NotFound, TooBusy
from datp.model.pipeline import PipelineDefinition
from datp.pipelines.cases import CaseResult, TestCase, parse_cases
from datp.pipelines.check import check_documents, parse_document, refusal
from datp.pipelines.differences import Difference, as_written, differences, line_by_line
from datp.pipelines.files import PipelineFile
from datp.steps.registry import Registry, load_registry

Name = Annotated[str, msgspec.Meta(description="The pipeline; a / in its name is written %2F.")]
Comment = Annotated[str, msgspec.Meta(description="Why: it stays with the version.")]


class OnePipeline(Words, frozen=True):
    pipeline: Name


class OneVersion(Words, frozen=True):
    pipeline: Name
    version: Annotated[str, msgspec.Meta(description="The version, or `draft`.")]


class Why(Words, frozen=True):
    reason: ReasonText


class Compared(Words, frozen=True):
    old: Annotated[str, msgspec.Meta(description="A version, or `draft`; default: the active one.")] = ""
    new: Annotated[str, msgspec.Meta(description="A version, or `draft`; default: the newest version.")] = ""


class Exported(Words, frozen=True):
    version: Annotated[str, msgspec.Meta(description="Default: the active one.")] = ""


class Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A pipeline, as in a file."""

    definition: dict[str, Any]
    tests: list[dict[str, Any]] | None = None
    """Its test cases; null: they stay as they are."""


class Push(Written, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A version of a pipeline."""

    activate: bool = True
    """New transactions take it from now on."""
    comment: Comment = ""
    reason: ReasonText


class SaveDraft(Written, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A draft of a pipeline's next version."""

    reason: ReasonText


class Commit(Reason, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The draft becomes a version."""

    comment: Comment = ""
    activate: bool = False


class Activate(Reason, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which version new transactions are to take."""

    version: str
    force: bool = False
    """Even if it couldn't run on the nodes that are there."""


class Clone(Reason, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A version becomes a draft."""

    version: str = ""
    """'': the active one."""
    to: str = ""
    """Of another pipeline; '': of the same."""


class Import(Reason, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """What an export answered."""

    exported: dict[str, Any]
    activate: bool = False


class RunTests(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which test cases are run."""

    version: str = ""
    """A version, or `draft`; '': the active one."""
    tests: list[dict[str, Any]] | None = None
    """These, instead of those that are kept with the pipeline."""


class PipelineList(msgspec.Struct, frozen=True, rename="camel"):
    """All that are known, by name."""

    pipelines: list[PipelineDescribed]


class PipelineVersions(msgspec.Struct, frozen=True, rename="camel"):
    """The versions of a pipeline, the newest first."""

    pipeline: str
    active_version: str
    """'' for none."""
    versions: list[VersionDescribed]


class PipelineVersion(msgspec.Struct, frozen=True, rename="camel"):
    """A version, whole."""

    pipeline: str
    version: str
    is_active: bool
    definition: Any
    """As in a pipeline's file: it can be pushed again."""
    tests: list[TestCase]


class Problems(msgspec.Struct, frozen=True, rename="camel"):
    """What is wrong with a pipeline."""

    pipeline: str | None
    problems: list[str]


class Differences(msgspec.Struct, frozen=True, rename="camel"):
    """What two versions say differently."""

    old: str
    new: str
    differences: list[Difference]
    patch: str
    """Line by line."""


class TestResults(msgspec.Struct, frozen=True, rename="camel"):
    """What came of test cases."""

    __test__ = False  # pytest takes what is called Test… for its own

    passed: bool
    results: list[CaseResult]


class PipelineRoutes:
    """The routes, over one API."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._pipelines = Pipelines(api.store, api.definitions, api.archive, api.operations)
        self._tester = PipelineTester(api.settings.steps)
        self._loaded: Registry | None = None

    def routes(self) -> list[Route]:
        looking: dict[str, Any] = {**OPERATOR, "tag": "operators: pipelines", "method": "GET"}
        acting: dict[str, Any] = {**ADMIN, "tag": "operators: pipelines", "method": "POST"}
        changing = {**acting, "refusals": (NotFound, BadDefinition, Conflict, DatabaseError)}
        deleting = {**changing, "method": "DELETE"}
        every, one = "/v1/admin/pipelines", "/v1/admin/pipelines/{pipeline}"
        saved = {200: "The version was there already.", 201: "It is a new version."}
        there = {**looking, "refusals": (NotFound, DatabaseError)}
        return [
            Route(path=every, handler=self.admin_list_pipelines, **looking),
            Route(path=every, handler=self.admin_push_pipeline, statuses=saved, **changing),
            Route(path="/v1/admin/check-pipeline", handler=self.admin_check_pipeline, **acting),
            Route(path="/v1/admin/import-pipeline", handler=self.admin_import_pipeline, statuses=saved, **changing),
            Route(path=one, handler=self.admin_show_pipeline, **there),
            Route(path=one, handler=self.admin_delete_pipeline, **deleting),
            Route(path=f"{one}/versions", handler=self.admin_list_versions, **there),
            Route(path=f"{one}/versions/{{version}}", handler=self.admin_show_version, **there),
            Route(path=f"{one}/versions/{{version}}", handler=self.admin_delete_version, **deleting),
            Route(path=f"{one}/draft", handler=self.admin_save_draft, **{**changing, "method": "PUT"}),
            Route(path=f"{one}/commit", handler=self.admin_commit_draft, statuses=saved, **changing),
            Route(path=f"{one}/activate", handler=self.admin_activate_pipeline, **changing),
            Route(path=f"{one}/deactivate", handler=self.admin_deactivate_pipeline, **changing),
            Route(path=f"{one}/clone", handler=self.admin_clone_pipeline, **changing),
            Route(path=f"{one}/differences", handler=self.admin_compare_versions, **there),
            Route(path=f"{one}/export", handler=self.admin_export_pipeline, **there),
            Route(
                path=f"{one}/test",
                handler=self.admin_test_pipeline,
                **{**acting, "refusals": (NotFound, BadDefinition, TooBusy, DatabaseError)},
            ),
        ]

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────

    async def admin_list_pipelines(self, call: Call) -> Answer[PipelineList]:
        """List the pipelines, with their active versions."""
        return Answer(PipelineList(await self._pipelines.describe()))

    async def admin_show_pipeline(self, call: Call, path: OnePipeline) -> Answer[PipelineVersion]:
        """Show the active version of a pipeline."""
        return Answer(await self._version(path.pipeline, ""))

    async def admin_list_versions(self, call: Call, path: OnePipeline) -> Answer[PipelineVersions]:
        """List the versions of a pipeline: who made each, when, and why."""
        versions = await self._pipelines.versions(path.pipeline)
        active = next((one.version for one in versions if one.is_active), "")
        return Answer(PipelineVersions(path.pipeline, active, versions))

    async def admin_show_version(self, call: Call, path: OneVersion) -> Answer[PipelineVersion]:
        """Show a version of a pipeline, or its draft."""
        return Answer(await self._version(path.pipeline, path.version))

    async def admin_compare_versions(self, call: Call, path: OnePipeline, query: Compared) -> Answer[Differences]:
        """Show what two versions say differently."""
        new = query.new or (await self._pipelines.versions(path.pipeline))[0].version
        was = await self._pipelines.definition(path.pipeline, query.old)
        becomes = await self._pipelines.definition(path.pipeline, new)
        names = (_version_of(was, query.old), _version_of(becomes, new))
        return Answer(Differences(*names, differences(was, becomes), line_by_line(was, becomes, *names)))

    async def admin_export_pipeline(self, call: Call, path: OnePipeline, query: Exported) -> Answer[Any]:
        """Export a version with its history and test cases.

        Each version is named by a hash of what it says and follows, so that an import can tell whether anything was
        changed.
        """
        return Answer(await self._pipelines.export(path.pipeline, query.version))

    async def _version(self, name: str, version: str) -> PipelineVersion:
        one = await self._pipelines.definition(name, version)
        active = (await self._api.definitions.pipelines()).get(name, "")
        named = _version_of(one, version)
        return PipelineVersion(name, named, named == active, as_written(one), await self._pipelines.tests(name))

    # ── changing ─────────────────────────────────────────────────────────────────────────────────────────────

    async def admin_check_pipeline(self, call: Call, body: Written) -> Answer[Problems]:
        """Check a pipeline without saving it: its form, step types, children, loops, node group and test cases."""
        known = await self._pipelines.known(self._registry())
        [checked] = check_documents([_file(body)], self._api.settings, known)
        return Answer(Problems(checked.pipeline.name if checked.pipeline else None, checked.problems))

    async def admin_push_pipeline(self, call: Call, body: Push) -> Answer[Pushed]:
        """Save a version of a pipeline; it is named by a hash of what it says and follows, and never changes."""
        [pushed] = await self._pipelines.push(
            act(call, body.reason), [_file(body)], self._registry(), comment=body.comment, activate=body.activate
        )
        return Answer(pushed, 201 if pushed.is_new else 200)

    async def admin_save_draft(self, call: Call, path: OnePipeline, body: SaveDraft) -> Answer[Done]:
        """Save a pipeline's draft, the one that there is or a new one. It may name what isn't there yet."""
        parsed = parse_document(_file(body), self._api.settings)
        if (error := refusal([parsed])) is not None:
            raise error
        assert parsed.pipeline is not None, "what has no problem was parsed"
        if parsed.pipeline.name != path.pipeline:
            raise BadDefinition(
                f"The draft is of pipeline {parsed.pipeline.name}, not of {path.pipeline}", field="name"
            )
        await self._pipelines.save_draft(act(call, body.reason), parsed.pipeline, parsed.tests)
        return Answer(Done("OK"))

    async def admin_commit_draft(self, call: Call, path: OnePipeline, body: Commit) -> Answer[Pushed]:
        """Make a version of the draft."""
        pushed = await self._pipelines.commit_draft(
            act(call, body.reason), path.pipeline, self._registry(), comment=body.comment, activate=body.activate
        )
        return Answer(pushed, 201 if pushed.is_new else 200)

    async def admin_activate_pipeline(self, call: Call, path: OnePipeline, body: Activate) -> Answer[Done]:
        """Have new transactions take this version from now on; those that run keep theirs."""
        registry = None if body.force else self._registry()
        await self._pipelines.activate(act(call, body.reason), path.pipeline, body.version, registry)
        return Answer(Done("OK"))

    async def admin_deactivate_pipeline(self, call: Call, path: OnePipeline, body: Reason) -> Answer[Done]:
        """Have nothing new start; those that run go on."""
        await self._pipelines.deactivate(act(call, body.reason), path.pipeline)
        return Answer(Done("OK"))

    async def admin_clone_pipeline(self, call: Call, path: OnePipeline, body: Clone) -> Answer[Done]:
        """Make a draft that says what a version says."""
        await self._pipelines.clone(act(call, body.reason), path.pipeline, body.version, to=body.to)
        return Answer(Done("OK"))

    async def admin_import_pipeline(self, call: Call, body: Import) -> Answer[Pushed]:
        """Take what was exported, after verifying that nothing of it was changed."""
        pushed = await self._pipelines.import_(
            act(call, body.reason), msgspec.json.encode(body.exported), self._registry(), activate=body.activate
        )
        return Answer(pushed, 201 if pushed.is_new else 200)

    async def admin_delete_pipeline(self, call: Call, path: OnePipeline, query: Why) -> Answer[Done]:
        """Delete a pipeline with all its versions. Refused while it is active, or anything live began with it."""
        await self._pipelines.delete(act(call, query.reason), path.pipeline, self._registry())
        return Answer(Done("OK"))

    async def admin_delete_version(self, call: Call, path: OneVersion, query: Why) -> Answer[Done]:
        """Delete a version, or the draft. Refused while it is active, or anything live began with it."""
        if path.version == DRAFT:
            await self._pipelines.discard_draft(act(call, query.reason), path.pipeline)
        else:
            await self._pipelines.delete(act(call, query.reason), path.pipeline, self._registry(), version=path.version)
        return Answer(Done("OK"))

    async def admin_test_pipeline(self, call: Call, path: OnePipeline, body: RunTests) -> Answer[TestResults]:
        """Run test cases, in a process and a store of their own, under a clock that waits for nothing.

        Nothing may reach out from there: step types that would must be mocked.
        """
        cases = parse_cases(body.tests) if body.tests is not None else await self._pipelines.tests(path.pipeline)
        if not cases:
            raise NotFound(f"Pipeline {path.pipeline} has no test cases; give some")
        family = await self._pipelines.family(path.pipeline, body.version, self._registry())
        within_s = self._api.settings.pipeline_test_timeout_ms / 1000
        results = await self._tester.run(path.pipeline, family, cases, within_s=within_s)
        return Answer(TestResults(all(one.passed for one in results), results))

    def _registry(self) -> Registry:
        """The step types of this process."""
        if self._loaded is None:
            self._loaded = load_registry(self._api.settings.steps)
        return self._loaded


def _file(body: Written) -> PipelineFile:
    return PipelineFile("the pipeline", body.definition, body.tests)


def _version_of(definition: PipelineDefinition, asked: str) -> str:
    return DRAFT if asked == DRAFT else definition.version
