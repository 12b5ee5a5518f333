"""Pipelines, their versions and node groups: load, save, watch. The one interface to where their truth is kept.

Where there is a database it keeps them: a change is made in SQL, and then published to the store, which is how it
reaches the nodes (a worker needs no SQL). Without one the store keeps them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from datp.archive.database import Database
from datp.archive.publish import settle
from datp.errors import BadDefinition, Conflict, NotFound, StartRefused, TooLarge
from datp.hotstore.store import Result, Store
from datp.model.ids import NodeGroup, PipelineName, PipelineVersion, parse_name
from datp.model.pipeline import (
    Commit,
    PinnedPipeline,
    PipelineDefinition,
    decode_pipeline,
    encode_pipeline,
)
from datp.model.values import printable
from datp.settings import check_shared


class Committed(NamedTuple):
    """The version that says what was to be committed, and whether it is a new one."""

    version: PipelineVersion
    is_new: bool


class Definitions:
    """What this process knows of pipelines and node groups; at most `definitions_look_ms` behind the truth."""

    def __init__(self, store: Store, database: Database | None = None) -> None:
        self._store = store
        self._database = database
        self._is_settled = False
        self._versions: dict[tuple[str, str], PipelineDefinition] = {}
        self._active: dict[str, str] = {}
        self._groups: dict[str, dict[str, Any]] = {}
        self._seen = (-1, -1)

    async def refresh(self) -> bool:
        """What changed since the last look is known; whether anything did."""
        async with self._store.turn() as turn:
            reply = turn.list_definitions(whole=False)
        if reply.value[:2] == self._seen:
            return False
        await self.reload()
        return True

    async def reload(self) -> None:
        """Everything is as it is in the store; versions, which never change, stay loaded."""
        async with self._store.turn() as turn:
            reply = turn.list_definitions(whole=True)
        listed = reply.value
        self._active = {name: version.decode() for name, version in listed.pipelines.items()}
        self._groups = {name: msgspec.json.decode(values) for name, values in listed.groups.items()}
        self._seen = listed[:2]

    # ── pipelines ────────────────────────────────────────────────────────────────────────────────────────────

    def pipeline(self, name: str, version: str) -> PipelineDefinition:
        """A version that has been loaded."""
        return self._versions[name, version]

    def has(self, versions: Mapping[str, str]) -> bool:
        """Whether all of these have been loaded."""
        return versions.items() <= self._versions.keys()

    async def load(self, pairs: Iterable[tuple[str, str]]) -> None:
        """These versions are loaded; raises NotFound for one that isn't there."""
        missing = [pair for pair in dict.fromkeys(pairs) if pair not in self._versions]
        if not missing:
            return
        async with self._store.turn() as turn:
            reply = turn.load_pipelines(missing)
        for (name, version), result in zip(missing, reply.value, strict=True):
            if result.code != "OK":
                raise NotFound(f"There is no version {version} of pipeline {name}")
            self._versions[name, version] = decode_pipeline(result.detail[1])

    def active(self, name: str) -> str:
        """The version that is active, as far as this process knows; '' for none."""
        return self._active.get(name, "")

    async def pin(self, name: str, pinned: Mapping[str, str]) -> PinnedPipeline:
        """The version that a transaction takes: the one that it has pinned, else the active one; it is loaded."""
        version = pinned.get(name) or self._active.get(name)
        if not version:
            await self.refresh()
            version = self._active.get(name)
        if not version:
            raise NotFound(_no_such_pipeline(name, self._active))
        await self.load([(name, version)])
        definition = self._versions[name, version]
        return PinnedPipeline(
            PipelineName(name),
            PipelineVersion(version),
            definition.group,
            definition.deadline_ms,
            definition.durability,
        )

    async def pipelines(self) -> dict[str, str]:
        """Every pipeline with its active version ('' for none)."""
        await self.refresh()
        return dict(self._active)

    async def versions(self, name: str) -> list[PipelineDefinition]:
        """The versions of a pipeline, the newest first; raises NotFound."""
        async with self._store.turn() as turn:
            reply = turn.list_versions([name])
        [versions] = reply.value
        if not versions:
            raise NotFound(_no_such_pipeline(name, await self.pipelines()))
        await self.load((name, version) for version in versions)
        loaded = [self._versions[name, version] for version in versions]
        return sorted(loaded, key=lambda one: (one.commit.at if one.commit else 0, one.version), reverse=True)

    async def commit(
        self, definition: PipelineDefinition, *, comment: str = "", author: str = "", activate: bool
    ) -> Committed:
        """There is a version that says this: the active or the newest one, if it does; else a new one follows it.

        Raises BadRequest, StoreError, DatabaseError.
        """
        said = msgspec.structs.replace(definition, commit=None)
        most = self._store.settings.note_length_max
        if len(comment) > most:
            raise TooLarge(f"A comment has at most {most} characters (note_length_max)", field="comment")
        active = (await self.pipelines()).get(said.name)
        known = await self.versions(said.name) if active is not None else []
        first = sorted(known, key=lambda one: one.version != active)  # the active one, then the newest
        for one in first[:1] + known[:1]:
            if one.content == said.content:
                if activate and one.version != active:
                    await self.activate(said.name, one.version)
                return Committed(one.version, is_new=False)
        parent = known[0] if known else None
        at = self._store.clock.now_ms()
        if parent is not None and parent.commit is not None:
            at = max(at, parent.commit.at + 1)  # so that the newest is the newest, whatever clocks say
        made = Commit(said.content, parent.version if parent else "", comment, printable(author), at)
        await self.save(msgspec.structs.replace(said, commit=made), activate=activate)
        return Committed(made.version, is_new=True)

    async def save(self, definition: PipelineDefinition, *, activate: bool) -> bool:
        """The version is stored, and active if that is asked for; whether it is a new one."""
        item = (definition.name, definition.version, encode_pipeline(definition), int(activate))
        return bool((await self._save_pipeline(item)).detail[0])

    async def save_document(self, name: str, version: str, document: str) -> None:
        """The version is stored as it was written elsewhere, so that its hashes stay what they are."""
        await self._save_pipeline((name, version, document, 0))

    async def documents(self, name: str, versions: Iterable[str]) -> dict[str, bytes]:
        """What these versions say, as it is stored; those that aren't there are left out."""
        pairs = [(name, version) for version in versions]
        async with self._store.turn() as turn:
            reply = turn.load_pipelines(pairs)
        return {
            version: result.detail[1]
            for (_, version), result in zip(pairs, reply.value, strict=True)
            if result.code == "OK"
        }

    async def activate(self, name: str, version: str) -> None:
        """New transactions take this version from now on."""
        item = (name, version, "", 1)
        if self._database is not None:
            await self.settle()
            # What is published says it whole: whoever saved the version may have died before it was.
            known = (await self._database.load_pipelines([(name, version)]))[0]
            item = (name, version, known.detail[1].decode() if known.code == "OK" else "", 1)
        if (await self._save_pipeline(item)).code != "OK":
            raise NotFound(f"There is no version {version} of pipeline {name}")

    async def deactivate(self, name: str) -> None:
        """New transactions take no version of it any more; those that have one go on."""
        change = 0
        if self._database is not None:
            await self.settle()
            change, [kept] = await self._database.deactivate_pipelines([name])
            if kept.code != "OK":
                raise NotFound(_no_such_pipeline(name, await self.pipelines()))
        async with self._store.turn() as turn:
            reply = turn.deactivate_pipelines([name], change=change)
        result = reply.value[0]
        _check_not_in_sql(result)
        if result.code != "OK":
            raise NotFound(_no_such_pipeline(name, await self.pipelines()))
        self._active[name] = ""

    async def delete(self, name: str, versions: Sequence[str]) -> bool:
        """These versions are gone; whether the pipeline is, with its last one. Raises Conflict for the active one.

        Whoever calls has made sure that nothing uses them.
        """
        items = [(name, version) for version in versions]
        change = 0
        if self._database is not None:
            await self.settle()
            change, kept = await self._database.delete_versions(items)
            for (_, version), result in zip(items, kept, strict=True):
                _check_deleted(name, version, result)
        async with self._store.turn() as turn:
            reply = turn.delete_versions(items, change=change)
        for (_, version), result in zip(items, reply.value, strict=True):
            _check_not_in_sql(result)
            if self._database is None:
                _check_deleted(name, version, result)
            self._versions.pop((name, version), None)
        return any(result.code == "OK" and result.detail[0] for result in reply.value)

    async def settle(self) -> None:
        """The store and SQL, where there is one, know the same; looked at once, before the first change."""
        if self._database is not None and not self._is_settled:
            await settle(self._store, self._database)
            self._is_settled = True

    async def _save_pipeline(self, item: tuple[str, str, str, int]) -> Result:
        """In SQL first, so that what nodes see has been kept."""
        change = 0
        if self._database is not None:
            await self.settle()
            change, [kept] = await self._database.save_pipelines([item])
            if kept.code != "OK":
                return kept
        async with self._store.turn() as turn:
            reply = turn.save_pipelines([item], change=change)
        published = reply.value[0]
        _check_not_in_sql(published)
        if published.code == "OK" and item[3]:
            self._active[item[0]] = item[1]  # who changed it sees it at once
        return published if self._database is None else kept

    async def definition(self, name: str, version: str = "") -> PipelineDefinition:
        """A version, or the active one."""
        async with self._store.turn() as turn:
            reply = turn.load_pipelines([(name, version)])
        result = reply.value[0]
        if result.code == "NO_PIPELINE":
            raise NotFound(_no_such_pipeline(name, await self.pipelines()))
        if result.code != "OK":
            raise NotFound(f"There is no version {version} of pipeline {name}")
        return decode_pipeline(result.detail[1])

    # ── node groups ──────────────────────────────────────────────────────────────────────────────────────────

    async def retention(self) -> dict[str, int]:
        """How long transactions of a type are kept after their end, in ms, where the type's active version says so."""
        found = {}
        for name, version in (await self.pipelines()).items():
            if kept_ms := (await self.definition(name, version)).retention_ms if version else 0:
                found[name] = kept_ms
        return found

    def group(self, name: str) -> dict[str, Any]:
        """What the nodes of a group share; raises StartRefused for one that isn't known."""
        if name not in self._groups:
            known = ", ".join(sorted(self._groups)) or "none yet; make one with: datp group set main"
            raise StartRefused(f"There is no node group {name!r}. Known: {known}")
        return self._groups[name]

    def groups(self) -> dict[str, dict[str, Any]]:
        return dict(self._groups)

    async def save_group(self, name: str, values: Mapping[str, Any], *, only_new: bool = False) -> None:
        """The group is known, with these settings; raises BadDefinition."""
        checked = check_shared(values)
        item = (NodeGroup(parse_name(name, "node group")), json.dumps(checked), int(only_new))
        change = 0
        if self._database is not None:
            await self.settle()
            change, [kept] = await self._database.save_node_groups([item])
            if kept.code == "SAME":
                return
        async with self._store.turn() as turn:
            reply = turn.save_node_groups([item], change=change)
        published = reply.value[0]
        _check_not_in_sql(published)
        if published.code not in ("OK", "SAME"):
            raise BadDefinition(f"node group {name}: {published.text}")


def _check_not_in_sql(result: Result) -> None:
    """Raises Conflict where a process without the database would change what the database keeps."""
    if result.code == "IN_SQL":
        raise Conflict(
            "The definitions of this store are kept in its database: name it with DATP_DATABASE_URL",
            reason=result.code,
        )


def _check_deleted(name: str, version: str, result: Result) -> None:
    if result.code == "ACTIVE":
        raise Conflict(
            f"{name} {version} is active: activate another version, or none with: datp pipeline deactivate {name}",
            reason=result.code,
        )
    if result.code != "OK":
        raise NotFound(f"There is no version {version} of pipeline {name}")


def _no_such_pipeline(name: str, known: Mapping[str, str]) -> str:
    if name in known:
        return f"Pipeline {name} has no active version; make one active with: datp pipeline activate {name} VERSION"
    some = ", ".join(sorted(known)[:10]) or "none yet"
    return f"There is no pipeline {name}. Known: {some}"
