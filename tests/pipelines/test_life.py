"""The life of pipelines: drafts, versions, activation, and an end that nothing which still runs has to fear."""

import asyncio
from typing import Any

import pytest
from worker.support import Engine, until

from datp.api.operations import Act
from datp.api.pipelines import Pipelines
from datp.archive.audit import AuditLog
from datp.errors import BadDefinition, Conflict, NotFound
from datp.model.ids import TransactionId
from datp.pipelines.cases import parse_cases
from datp.pipelines.files import PipelineFile

ANNA = Act("cli:anna@host", "because")
TESTS = [{"name": "echoes", "input": 5, "expect": {"output": 5}}]

three_databases = pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])


def file(name: str, *steps: dict[str, Any] | str, tests: Any = None, **more: Any) -> PipelineFile:
    listed = [
        {"id": f"s{number}", **({"step": said} if isinstance(said, str) else said)}
        for number, said in enumerate(steps, 1)
    ]
    return PipelineFile(f"{name}.yaml", {"name": name, "steps": listed, **more}, tests)


async def pushed(pipelines: Pipelines, eng: Engine, *files: PipelineFile, **more: Any) -> list[str]:
    """The versions that came of it."""
    done = await pipelines.push(ANNA, files, eng.registry, **{"activate": True, **more})
    return [one.version for one in done]


@three_databases
async def test_from_a_draft_to_a_version_to_an_active_one(eng: Engine, pipelines: Pipelines) -> None:
    definition = eng.parsed("order", "util/echo")
    await pipelines.save_draft(ANNA, definition, parse_cases(TESTS))
    assert await pipelines.definition("order", "draft") == definition
    [listed] = await pipelines.describe()
    assert (listed.name, listed.version, listed.has_draft) == ("order", None, True)
    done = await pipelines.commit_draft(ANNA, "order", eng.registry, comment="the first")
    assert (done.is_new, done.is_activated) == (True, False)
    with pytest.raises(NotFound, match="has no draft"):
        await pipelines.definition("order", "draft")
    await pipelines.activate(ANNA, "order", done.version, eng.registry)
    [version] = await pipelines.versions("order")
    assert (version.version, version.is_active, version.author, version.comment) == (
        *(done.version, True, ANNA.who),
        "the first",
    )
    assert [test.name for test in await pipelines.tests("order")] == ["echoes"]
    assert eng.archive is not None
    entries = await AuditLog(eng.archive.database).read(subject="order")
    assert [one.action for one in entries[::-1]] == ["pipeline.draft", "pipeline.push", "pipeline.activate"]
    assert entries[0].before == {"activeVersion": ""} and entries[0].after == {"activeVersion": done.version}


async def test_a_draft_that_could_not_run_is_saved_but_not_committed(eng: Engine, pipelines: Pipelines) -> None:
    await pipelines.save_draft(ANNA, eng.parsed("order", "no/such", {"pipeline": "nothing"}))
    with pytest.raises(BadDefinition, match=r"no step type no/such here.*and 1 more problem"):
        await pipelines.commit_draft(ANNA, "order", eng.registry, comment="")
    assert (await pipelines.describe())[0].has_draft
    await pipelines.discard_draft(ANNA, "order")
    assert await pipelines.describe() == []
    with pytest.raises(NotFound):
        await pipelines.discard_draft(ANNA, "order")


async def test_a_clone_is_a_draft(eng: Engine, pipelines: Pipelines) -> None:
    await pushed(pipelines, eng, file("order", "util/echo", tests=TESTS, tags=["shop"]))
    draft = await pipelines.clone(ANNA, "order", to="order/copy")
    assert (draft.name, draft.tags, draft.commit) == ("order/copy", ["shop"], None)
    assert [test.name for test in await pipelines.tests("order/copy")] == ["echoes"]
    with pytest.raises(Conflict, match="has a draft already"):
        await pipelines.clone(ANNA, "order", to="order/copy")
    done = await pipelines.commit_draft(ANNA, "order/copy", eng.registry, comment="", activate=True)
    assert {one.name: one.version for one in await pipelines.describe()}["order/copy"] == done.version


async def test_what_runs_keeps_its_version(eng: Engine, pipelines: Pipelines) -> None:
    """An activation reaches every node within a second, and nothing that runs."""
    held = eng.held()
    says = {"step": "util/fixed-reply", "with": {"status": "success", "reply": 1}}
    [old] = await pushed(pipelines, eng, file("order", "test/held", says))
    nodes = [await eng.node(), await eng.node()]
    before = await eng.start("order")
    await held.began()
    began = asyncio.get_running_loop().time()
    [new] = await pushed(pipelines, eng, file("order", {"step": "util/fixed-reply", "with": {"reply": 2}}))

    async def everybody_knows() -> bool:
        return all(node.definitions._active["order"] == new for node in nodes)

    await until(everybody_knows, "every node knows the new version", within_s=1.0)
    assert asyncio.get_running_loop().time() - began < 1.0
    after = await eng.final(await eng.start("order"))
    held.let_go()
    first = await eng.final(before)
    assert (first.pipeline_version, bytes(first.transaction_output)) == (old, b"1")
    assert (after.pipeline_version, bytes(after.transaction_output)) == (new, b"2")


# ── the end of a pipeline ────────────────────────────────────────────────────────────────────────────────────────


async def test_an_active_version_is_not_deleted(eng: Engine, pipelines: Pipelines) -> None:
    [old] = await pushed(pipelines, eng, file("order", "util/echo"))
    [new] = await pushed(pipelines, eng, file("order", "util/echo", "util/echo"))
    for version in (new, ""):
        with pytest.raises(Conflict, match="is active"):
            await pipelines.delete(ANNA, "order", eng.registry, version=version)
    await pipelines.delete(ANNA, "order", eng.registry, version=old)
    assert [one.version for one in await pipelines.versions("order")] == [new]
    await pipelines.deactivate(ANNA, "order")
    await pipelines.delete(ANNA, "order", eng.registry)
    assert await pipelines.describe() == []
    assert eng.archive is not None
    assert (await eng.archive.database.list_definitions()).pipelines == {}


async def test_a_version_that_something_live_began_with_is_not_deleted(eng: Engine, pipelines: Pipelines) -> None:
    """Wherever it is: queued, asleep, a child's or a branch's version."""
    nap = {"step": "util/delay", "with": {"duration": "1h"}}
    [child] = await pushed(pipelines, eng, file("child", nap))
    await pushed(pipelines, eng, file("parent", {"pipeline": "child"}))
    await pushed(pipelines, eng, file("forks", {"parallel": {"branches": [{"pipeline": "child"}]}}))
    node = await eng.node()

    async def node_knows() -> bool:
        return node.definitions._active["child"] == child

    for name in ("parent", "forks", "child"):
        await until(node_knows, "the node knows which version is active")
        tx_id = await eng.start(name)
        await eng.phase(tx_id, "joining" if name == "forks" else "sleeping")
        await pushed(pipelines, eng, file("child", "util/echo"))
        with pytest.raises(Conflict, match="is in use: the transaction tx-"):
            await pipelines.delete(ANNA, "child", eng.registry, version=child)
        await eng.transactions.cancel(tx_id)
        await eng.final(tx_id)
        await pipelines.activate(ANNA, "child", child)
    await pushed(pipelines, eng, file("child", "util/echo"))
    await pipelines.delete(ANNA, "child", eng.registry, version=child)


@three_databases
async def test_a_version_is_in_use_too_when_its_transaction_has_left_memory(eng: Engine, pipelines: Pipelines) -> None:
    nap = {"step": "util/delay", "with": {"duration": "1h"}}
    [version] = await pushed(pipelines, eng, file("order", nap))
    await eng.node(evict_after_ms=1, archive_delay_ms=0, archive_interval_ms=20, roles="worker,wakeup,archive")
    tx_id = await eng.start("order")

    async def has_left() -> bool:
        async with eng.store.turn() as turn:
            reply = turn.get_state([tx_id])
        return getattr(reply.value[0], "code", "") == "EVICTED"

    await until(has_left, "it has left memory")
    await pipelines.deactivate(ANNA, "order")
    with pytest.raises(Conflict, match=TransactionId(tx_id)):
        await pipelines.delete(ANNA, "order", eng.registry, version=version)
    await eng.transactions.cancel(tx_id)
    await eng.final(tx_id)
    await pipelines.delete(ANNA, "order", eng.registry)


async def test_a_pipeline_that_another_one_calls_is_not_deleted(eng: Engine, pipelines: Pipelines) -> None:
    await pushed(pipelines, eng, file("child", "util/echo"), file("parent", {"pipeline": "child"}))
    await pipelines.deactivate(ANNA, "child")
    with pytest.raises(Conflict, match="Pipeline parent calls child"):
        await pipelines.delete(ANNA, "child", eng.registry)


# ── what is checked ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ([file("a", "no/such")], "there is no step type no/such here"),
        ([file("a", {"step": "util/delay", "with": {"duration": "soon"}})], "soon"),
        ([file("a", {"step": "util/echo", "undo": {"step": "no/undo"}})], "no step type no/undo"),
        ([file("a", {"pipeline": "nothing"})], "there is no pipeline nothing"),
        ([file("a", {"pipeline": "a"})], "it would run for ever: a → a"),
        (
            [
                file("a", {"pipeline": "b"}),
                file("b", {"parallel": {"branches": [{"pipeline": "c"}]}}),
                file("c", {"pipeline": "a"}),
            ],
            "it would run for ever: a → b → c → a",
        ),
        ([file("a", "util/echo", nodeGroup="nowhere")], "there is no node group nowhere; known are: main"),
        ([file("a", "util/echo"), file("a", "util/echo")], "pipeline a is in a.yaml too"),
        ([file("a", "util/echo", inputSchema={"type": "x"})], "inputSchema"),
        ([file("a", "util/echo", tests=[{"name": "t", "expects": {}}])], "tests: Object contains unknown field"),
        ([file("a", "util/echo", tests=[{"name": "t"}, {"name": "t"}])], "each needs a name of its own"),
        ([file("a", "util/echo", tests=[{"name": "t", "expect": {"status": "fine"}}])], "status fine is none of"),
    ],
)
async def test_what_could_not_run_is_not_pushed(
    eng: Engine, pipelines: Pipelines, files: list[PipelineFile], says: str
) -> None:
    with pytest.raises(BadDefinition) as refused:
        await pushed(pipelines, eng, *files)
    assert says in str(refused.value)
    assert await pipelines.describe() == []


async def test_a_pipeline_may_call_itself_on_a_condition(eng: Engine, pipelines: Pipelines) -> None:
    await pushed(pipelines, eng, file("a", {"pipeline": "a", "when": "input > `1`"}))
    assert [one.name for one in await pipelines.describe()] == ["a"]


async def test_a_step_type_that_the_groups_nodes_have_not_is_found(eng: Engine, pipelines: Pipelines) -> None:
    node = await eng.node()
    eng.step("test/new", lambda: None)
    with pytest.raises(BadDefinition, match="the nodes of group main have no step type test/new"):
        await pushed(pipelines, eng, file("a", "test/new"))
    [version] = await pushed(pipelines, eng, file("a", "util/echo"))
    await node.stop()
    [with_new] = await pushed(pipelines, eng, file("a", "test/new"))
    eng.registry._by_name.pop("test/new")
    await pipelines.activate(ANNA, "a", version, eng.registry)
    with pytest.raises(BadDefinition, match="no step type test/new here"):
        await pipelines.activate(ANNA, "a", with_new, eng.registry)
    await pipelines.activate(ANNA, "a", with_new)
