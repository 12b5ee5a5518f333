"""The life of pipelines: draft, commit, activate, deactivate, delete; export and import. What is changed is audited.

pipelines = Pipelines(store, definitions, archive, operations)
await pipelines.push(Act("cli:anna@host"), files, registry, comment="cheaper", activate=True)
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from datp.api.operations import Act, Operations
from datp.archive.archive import Archive
from datp.archive.drafts import Drafts
from datp.archive.pipeline_tests import PipelineTests
from datp.definitions import Definitions
from datp.errors import Conflict, DatabaseRefused, NotFound, TooLarge
from datp.hotstore.store import Store
from datp.model.ids import parse_name
from datp.model.pipeline import PipelineDefinition, decode_pipeline, encode_pipeline
from datp.model.reply import iso
from datp.pipelines.bundle import read_bundle, write_bundle
from datp.pipelines.cases import TestCase, decode_case, encode_case
from datp.pipelines.check import Checked, Known, check_documents, check_together, children_of, refusal
from datp.pipelines.differences import as_written
from datp.pipelines.files import PipelineFile
from datp.pipelines.users import find_user
from datp.steps.registry import Registry

DRAFT: Final = "draft"
"""In place of a version."""


class PipelineDescribed(msgspec.Struct, frozen=True, rename="camel"):
    """A pipeline in a list."""

    name: str
    version: str | None
    """The active one."""
    node_group: str | None
    steps: int | None
    is_transaction_type: bool | None
    description: str | None
    tags: list[str]
    has_draft: bool


class VersionDescribed(msgspec.Struct, frozen=True, rename="camel"):
    """A version in a list."""

    version: str
    is_active: bool
    parent: str | None
    committed_at: str | None
    author: str | None
    comment: str | None
    steps: int
    description: str


class Pushed(msgspec.Struct, frozen=True, rename="camel"):
    """What became of a pipeline that was pushed, committed or imported."""

    pipeline: str
    version: str
    is_new: bool
    is_activated: bool


class Pipelines:
    """Pipelines, for those who may see and change them.

    What changes them raises Conflict where SQL keeps them and this process has no database.
    """

    def __init__(self, store: Store, definitions: Definitions, archive: Archive | None, operations: Operations) -> None:
        self._store = store
        self._definitions = definitions
        self._database = archive.database if archive is not None else None
        self._audit = operations.record

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────

    async def describe(self) -> list[PipelineDescribed]:
        """Every pipeline, by name; those too that are only drafts."""
        active = await self._definitions.pipelines()
        await self._definitions.load((name, version) for name, version in active.items() if version)
        drafts = await Drafts(self._database).every() if self._database is not None else {}
        described = []
        for name in sorted({*active, *drafts}):
            version = active.get(name, "")
            said = self._definitions.pipeline(name, version) if version else None
            described.append(
                PipelineDescribed(
                    name=name,
                    version=version or None,
                    node_group=said.node_group if said else None,
                    steps=len(said.steps) if said else None,
                    is_transaction_type=said.is_transaction_type if said else None,
                    description=said.description if said else None,
                    tags=said.tags if said else [],
                    has_draft=name in drafts,
                )
            )
        return described

    async def versions(self, name: str) -> list[VersionDescribed]:
        """The versions of a pipeline, the newest first. Raises NotFound."""
        active = (await self._definitions.pipelines()).get(name)
        described = []
        for one in await self._definitions.versions(name):
            commit = one.commit
            described.append(
                VersionDescribed(
                    version=one.version,
                    is_active=one.version == active,
                    parent=commit.parent or None if commit else None,
                    committed_at=iso(commit.at) if commit else None,
                    author=commit.author or None if commit else None,
                    comment=commit.comment or None if commit else None,
                    steps=len(one.steps),
                    description=one.description,
                )
            )
        return described

    async def definition(self, name: str, version: str = "") -> PipelineDefinition:
        """A version, the active one (''), or the draft. Raises NotFound."""
        if version != DRAFT:
            return await self._definitions.definition(name, version)
        found = await self._drafts().find(name)
        if found is None:
            raise NotFound(f"Pipeline {name} has no draft; save one with: datp pipeline push --draft FILE")
        return decode_pipeline(found)

    async def family(self, name: str, version: str, registry: Registry) -> list[PipelineDefinition]:
        """The version, and the active versions of every pipeline that it may start, and so on. Raises NotFound."""
        found = {name: await self.definition(name, version)}
        names = children_of(found[name], registry)
        while names := names - found.keys():
            for child in sorted(names):
                found[child] = await self._definitions.definition(child)
                names |= children_of(found[child], registry)
        return list(found.values())

    async def tests(self, name: str) -> list[TestCase]:
        """The pipeline's test cases."""
        if self._database is None:
            return []
        return [decode_case(stored) for stored in await PipelineTests(self._database).of(name)]

    async def export(self, name: str, version: str = "") -> bytes:
        """The version with its history and the test cases, as a file that `import_` takes. Raises NotFound."""
        wanted = (await self._definitions.definition(name, version)).version
        versions = [one.version for one in await self._definitions.versions(name)]
        documents = await self._definitions.documents(name, versions)
        return write_bundle(name, wanted, documents, await self.tests(name))

    async def known(self, registry: Registry) -> Known:
        """What pipelines are checked against here: what is active, the node groups, and what their nodes can do."""
        await self._definitions.reload()
        active = await self._definitions.pipelines()
        await self._definitions.load((name, version) for name, version in active.items() if version)
        return Known(
            registry=registry,
            pipelines={
                name: self._definitions.pipeline(name, version) if version else None for name, version in active.items()
            },
            groups=set(self._definitions.groups()),
            step_types=await self._step_types(),
        )

    # ── drafts ───────────────────────────────────────────────────────────────────────────────────────────────

    async def save_draft(
        self, act: Act, definition: PipelineDefinition, tests: Sequence[TestCase] | None = None
    ) -> None:
        """The pipeline's draft says this. It may still name what isn't there."""
        stored = encode_pipeline(msgspec.structs.replace(definition, commit=None))
        await self._drafts().save(definition.name, stored, act.who, at_ms=self._store.clock.now_ms())
        await self._save_tests(definition.name, tests)
        await self._audit(act, "pipeline.draft", definition.name, None, {"content": definition.content})

    async def discard_draft(self, act: Act, name: str) -> None:
        """The pipeline has no draft. Raises NotFound."""
        if not await self._drafts().discard(name):
            raise NotFound(f"Pipeline {name} has no draft")
        await self._audit(act, "pipeline.discard-draft", name, None, None)

    async def commit_draft(
        self, act: Act, name: str, registry: Registry, *, comment: str, activate: bool = False
    ) -> Pushed:
        """The draft is a version. Raises NotFound, BadDefinition for one that couldn't run."""
        draft = await self.definition(name, DRAFT)
        file = PipelineFile(f"the draft of {name}", as_written(draft))
        [pushed] = await self.push(act, [file], registry, comment=comment, activate=activate)
        await self._drafts().discard(name)
        return pushed

    async def clone(self, act: Act, name: str, version: str = "", *, to: str = "") -> PipelineDefinition:
        """The draft of `to` (or of the same pipeline) says what this version says. Raises NotFound, Conflict."""
        target = parse_name(to or name, "name")
        if await self._drafts().find(target) is not None:
            raise Conflict(f"Pipeline {target} has a draft already; commit or discard it first", reason="DRAFT")
        said = await self.definition(name, version)
        draft = msgspec.structs.replace(said, name=target, commit=None)
        await self.save_draft(act, draft, await self.tests(name) if target != name else None)
        return draft

    # ── versions ─────────────────────────────────────────────────────────────────────────────────────────────

    async def push(
        self, act: Act, files: Sequence[PipelineFile], registry: Registry, *, comment: str = "", activate: bool
    ) -> list[Pushed]:
        """Each is a version, and active if that is asked for; none is, if one of them couldn't run: BadDefinition."""
        checked = check_documents(files, self._store.settings, await self.known(registry))
        if (error := refusal(checked)) is not None:
            raise error
        return [await self._commit(act, one, comment=comment, activate=activate) for one in checked]

    async def _commit(self, act: Act, checked: Checked, *, comment: str, activate: bool) -> Pushed:
        definition = checked.pipeline
        assert definition is not None, "what has no problem was parsed"
        before = (await self._definitions.pipelines()).get(definition.name)
        done = await self._definitions.commit(definition, comment=comment, author=act.who, activate=activate)
        await self._save_tests(definition.name, checked.tests)
        pushed = Pushed(definition.name, done.version, done.is_new, activate)
        await self._audit(act, "pipeline.push", definition.name, {"activeVersion": before}, pushed)
        return pushed

    async def activate(self, act: Act, name: str, version: str, registry: Registry | None = None) -> None:
        """New transactions take this version from now on, on every node within a second.

        Raises NotFound; with a registry BadDefinition, when it couldn't run here.
        """
        before = (await self._definitions.pipelines()).get(name)
        if registry is not None:
            await self._check_runs(await self._definitions.definition(name, version), registry)
        await self._definitions.activate(name, version)
        await self._audit(act, "pipeline.activate", name, {"activeVersion": before}, {"activeVersion": version})

    async def deactivate(self, act: Act, name: str) -> None:
        """New transactions take no version of it; those that have one go on. Raises NotFound."""
        before = (await self._definitions.pipelines()).get(name)
        await self._definitions.deactivate(name)
        await self._audit(act, "pipeline.deactivate", name, {"activeVersion": before}, {"activeVersion": None})

    async def delete(self, act: Act, name: str, registry: Registry, *, version: str = "") -> None:
        """The version, or the pipeline with all of them, is gone. Raises NotFound; Conflict while something needs it.

        It is in use while it is active, another pipeline calls it, or a live transaction began with it.
        """
        active = (await self._definitions.pipelines()).get(name)
        wanted = [version] if version else [one.version for one in await self._definitions.versions(name)]
        if active and active in wanted:
            raise Conflict(
                f"{name} {active} is active: activate another version, or none with: datp pipeline deactivate {name}",
                reason="ACTIVE",
            )
        if not active and (caller := await self._caller_of(name, registry)):
            raise Conflict(f"Pipeline {caller} calls {name}: change that first", reason="CALLED")
        # Until every node has seen which version is active, one of them may still begin with another.
        await asyncio.sleep(2 * self._store.settings.definitions_look_ms / 1000)
        if user := await find_user(self._store, self._database, name, wanted):
            raise Conflict(f"{name} is in use: the transaction {user} began with this version", reason="IN_USE")
        is_gone = await self._definitions.delete(name, wanted)
        if is_gone and self._database is not None:
            await Drafts(self._database).discard(name)
            await PipelineTests(self._database).replace(name, [])
        await self._audit(act, "pipeline.delete", name, {"versions": wanted}, None)

    async def import_(self, act: Act, content: bytes, registry: Registry, *, activate: bool = False) -> Pushed:
        """The exported version is here, with its history, after it was verified. Raises BadDefinition."""
        imported = read_bundle(content, self._store.settings)
        name, version = imported.pipeline, imported.version
        if activate:
            await self._check_runs(imported.definition, registry)
        known = await self._definitions.documents(name, imported.documents)
        for one, document in imported.documents.items():
            if one not in known:
                await self._definitions.save_document(name, one, document)
        if imported.tests:
            await self._save_tests(name, imported.tests)
        pushed = Pushed(name, version, version not in known, activate)
        await self._audit(act, "pipeline.import", name, None, pushed)
        if activate:
            await self.activate(act, name, version)
        return pushed

    # ── parts ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _check_runs(self, definition: PipelineDefinition, registry: Registry) -> None:
        checked = [Checked(f"{definition.name} {definition.version}", definition)]
        check_together(checked, await self.known(registry))
        if (error := refusal(checked)) is not None:
            raise error

    def _drafts(self) -> Drafts:
        """Raises DatabaseRefused where there is no database."""
        if self._database is None:
            raise DatabaseRefused("Drafts are kept in SQL, and this process has no database: name DATP_DATABASE_URL")
        return Drafts(self._database)

    async def _save_tests(self, name: str, tests: Sequence[TestCase] | None) -> None:
        """Its test cases are these; nothing is changed where none were spoken of, or there is no database."""
        if tests is None or self._database is None:
            return
        stored = [encode_case(test) for test in tests]
        most = self._store.settings.pipeline_bytes_max
        if sum(map(len, stored)) > most:
            raise TooLarge(f"The test cases of {name} have more than pipeline_bytes_max ({most}) bytes", field="tests")
        await PipelineTests(self._database).replace(name, stored)

    async def _caller_of(self, name: str, registry: Registry) -> str | None:
        """A pipeline whose active version names this one."""
        active = await self._definitions.pipelines()
        await self._definitions.load((one, version) for one, version in active.items() if version)
        for one, version in sorted(active.items()):
            if version and one != name and name in children_of(self._definitions.pipeline(one, version), registry):
                return one
        return None

    async def _step_types(self) -> Mapping[str, set[str]]:
        """Node group → what every live node of it can do."""
        async with self._store.turn() as turn:
            replies = [turn.list_nodes(partition) for partition in range(self._store.partitions)]
        common: dict[str, set[str]] = {}
        for reply in replies:
            for _, record, _, _ in reply.value:
                said = msgspec.json.decode(record)
                if "worker" in said.get("roles", ()):
                    here = {step_type["name"] for step_type in said.get("stepTypes", ())}
                    group = said.get("nodeGroup", "")
                    common[group] = common[group] & here if group in common else here
        return common
