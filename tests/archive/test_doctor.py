"""The doctor sees what is wrong with a deployment, on real servers that are set up wrongly."""

import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from archived import QUICK
from redis.asyncio import Redis
from servers import Server, _free_port, valkey, wait_until
from worker.support import Engine, engine

from datp.archive import migrate
from datp.archive.database import Database
from datp.doctor.examination import Diagnosis, examine
from datp.doctor.finding import Level
from datp.hotstore.store import Store
from datp.model.ids import partition_of
from datp.settings import Settings


async def diagnosis_of(eng: Engine, *, invariants: bool = False, **settings: object) -> Diagnosis:
    """Looked at from outside, as the command does."""
    given = replace(eng.settings, **settings)  # type: ignore[arg-type]
    store, database = Store(eng.store.url, given), None
    if given.database_url:
        database = Database(given.database_url, given)
    try:
        return await examine(store, database, invariants=invariants)
    finally:
        await store.close()
        if database is not None:
            await database.close()


def troubles(diagnosis: Diagnosis) -> str:
    """What is in trouble, a line each."""
    for finding in diagnosis.findings:
        assert (finding.level == Level.FINE) == (not finding.why) == (not finding.change), finding
    return "\n".join(f"{one.about}: {one.what}" for one in diagnosis.findings if one.level == Level.TROUBLE)


def all_of(diagnosis: Diagnosis) -> str:
    return "\n".join(f"{one.level} {one.about}: {one.what}" for one in diagnosis.findings)


# ── the work ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_a_sound_deployment_has_no_trouble(eng: Engine) -> None:
    await eng.pipeline("one", "util/echo", durability="journal")
    await eng.node(roles="worker,wakeup,archive")
    await eng.run("one")
    diagnosis = await diagnosis_of(eng, invariants=True)
    assert troubles(diagnosis) == ""
    assert "1 journal" in all_of(diagnosis) and "survives a crash" in all_of(diagnosis)
    assert diagnosis.levels["journal"] == "nothing that was answered is lost, even with the store"
    assert "the last second" in diagnosis.levels["hot"]


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_roles_and_workers_that_nobody_has(eng: Engine) -> None:
    await eng.definitions.save_group("far", {})
    await eng.pipeline("one", "util/echo")
    await eng.pipeline("away", "util/echo", nodeGroup="far")
    await eng.start("one")
    nothing = troubles(await diagnosis_of(eng))
    for role in ("worker", "wakeup", "archive"):
        assert f"role {role}: no live node has it" in nothing
    assert "node group main: 1 transactions are queued for it, and no live node" in nothing
    assert "node group far: no live node of it has the role worker; pipelines that run there: away" in nothing
    await eng.node(roles="worker,wakeup,archive")
    await eng.node(roles="worker", node_group="far")
    assert troubles(await diagnosis_of(eng)) == ""


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_a_waker_without_a_database_and_a_step_type_that_a_node_lacks(eng: Engine) -> None:
    await eng.pipeline("odd", "test/nobody-has-it")
    await eng.node(roles="worker,archive")
    await eng.node(roles="wakeup", database_url="")
    found = troubles(await diagnosis_of(eng))
    assert "don't know the step type test/nobody-has-it, which pipelines need: odd" in found
    assert f"role wakeup: {eng.nodes[1].node_id} have it, but no database" in found


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_a_group_whose_nodes_are_paused_and_what_is_parked(eng: Engine) -> None:
    await eng.pipeline("one", "util/echo")
    await eng.pipeline("odd", "test/nobody-has-it")
    node = await eng.node(roles="worker,wakeup,archive")
    parked = await eng.start("odd")
    await eng.phase(parked, "exception")
    await eng.ask(node, "pause")
    await eng.start("one")
    diagnosis = await diagnosis_of(eng)
    assert "1 transactions are queued for it, and all its nodes are paused" in troubles(diagnosis)
    assert "advice the exception list: 1 transactions are on it" in all_of(diagnosis)


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_states_that_wait_long_for_an_archiver(eng: Engine) -> None:
    await eng.pipeline("one", "util/echo")
    await eng.node(roles="worker,wakeup")
    tx_id = await eng.start("one")
    await eng.finals([tx_id])
    to_archive = f"toArchiveZ:{eng.store.tags[partition_of(tx_id)]}"
    async with Redis.from_url(eng.store.url) as redis:
        await redis.zadd(to_archive, {tx_id: eng.store.clock.now_ms() - 90_000})
    assert "states that are due to be archived have waited for 9" in troubles(await diagnosis_of(eng))


# ── the archive ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
async def test_a_server_whose_commits_are_not_durable(eng: Engine) -> None:
    """The tests' own servers are: they don't sync."""
    diagnosis = await diagnosis_of(eng)
    lines = [one for one in diagnosis.findings if one.level == Level.TROUBLE and one.about == "the archive"]
    assert len(lines) == 1 and ("fsync" in lines[0].change or "innodb_flush_log" in lines[0].change)
    assert "takes back its last commits" in diagnosis.levels["journal"]


async def test_the_clock_of_the_databases_server_is_read(database: Database) -> None:
    before_ms = time.time() * 1000
    assert before_ms - 10 <= await database.now_ms() <= time.time() * 1000 + 10


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_a_database_that_is_away_without_tables_or_anothers(eng: Engine, tmp_path: Path) -> None:
    away = await diagnosis_of(eng, database_url="postgresql://nobody@127.0.0.1:9/none")
    assert "the archive: The database can't be reached" in troubles(away)
    url = f"sqlite:///{tmp_path}/bare.sqlite"
    bare = await diagnosis_of(eng, database_url=url)
    assert "it lacks migration 1" in troubles(bare)
    other = Database(url, eng.settings)
    await migrate.up(other.driver)
    assert "no store has been archived there yet" in all_of(await diagnosis_of(eng, database_url=url))
    await other.register_store("anothers", 1, 2)
    assert "it is the archive of store anothers" in troubles(await diagnosis_of(eng, database_url=url))
    async with other.writing() as connection:
        await connection.execute("INSERT INTO datp_schema VALUES (9999, 'later', 0)")
    assert "it has migration 9999 (later), which this version" in troubles(await diagnosis_of(eng, database_url=url))
    await other.close()


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_a_store_that_was_replaced(eng: Engine) -> None:
    assert eng.archive is not None
    await eng.archive.database.raise_epoch()
    assert "it is at epoch 2, but the store at 1" in troubles(await diagnosis_of(eng))


# ── the store's server ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def careless() -> Iterator[Server]:
    """A server that keeps nothing, and throws away what it likes."""
    server = valkey(options={"appendonly": "no", "save": "", "maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"})
    yield server
    server.stop()


@pytest.fixture
async def careless_eng(careless: Server) -> AsyncIterator[Engine]:
    careless.flush()
    async with engine(careless.url, QUICK) as opened:
        yield opened


async def test_a_server_that_keeps_nothing(careless_eng: Engine) -> None:
    diagnosis = await diagnosis_of(careless_eng)
    found = troubles(diagnosis)
    assert "its append-only file is off" in found
    assert "maxmemory 105 MB and maxmemory-policy allkeys-lru" in found
    assert "there is none" in all_of(diagnosis)
    assert diagnosis.levels["hot"].startswith("a crash of the store's machine takes back everything;")
    assert diagnosis.levels["journal"] == "refused: there is no archive"


@pytest.mark.parametrize(("fsync", "says"), [("always", "takes back nothing"), ("no", "appendfsync no")])
async def test_how_often_the_file_is_synced(fsync: str, says: str, careless_eng: Engine, careless: Server) -> None:
    careless.client().config_set("appendonly", "yes")
    careless.client().config_set("appendfsync", fsync)
    try:
        diagnosis = await diagnosis_of(careless_eng)
        assert says in all_of(diagnosis)
        assert ("synced only when the system likes" in troubles(diagnosis)) == (fsync == "no")
    finally:
        careless.client().config_set("appendonly", "no")


async def test_a_full_memory_budget(careless_eng: Engine) -> None:
    assert "MB of 1 MB" in troubles(await diagnosis_of(careless_eng, memory_budget_mb=1))


async def test_a_replica_is_counted_and_is_no_store() -> None:
    primary = Server("valkey", port=_free_port())
    replica = Server("valkey", port=_free_port())
    try:
        async with engine(primary.url, QUICK) as eng:
            replica.client().execute_command("REPLICAOF", "127.0.0.1", primary.url.rpartition(":")[2])
            wait_until(lambda: primary.client().info("replication")["connected_slaves"], "it follows")
            diagnosis = await diagnosis_of(eng)
            assert "it has 1 replicas, and wants 0 of them to take a write" in all_of(diagnosis)
            assert "its loss, what its replicas had not received yet" in diagnosis.levels["hot"]
            wait_until(lambda: replica.client().info("replication")["master_link_status"] == "up", "it has everything")
            store = Store(replica.url, QUICK)
            said = troubles(await examine(store, None))
            await store.close()
            assert "replica" in said, said
    finally:
        replica.stop()
        primary.stop()


async def test_a_store_that_is_empty_or_away(careless: Server) -> None:
    careless.flush()
    settings = Settings()
    for url, says in ((careless.url, "is empty"), ("redis://127.0.0.1:9", "can't be reached")):
        store = Store(url, settings)
        diagnosis = await examine(store, None)
        await store.close()
        assert says in troubles(diagnosis) and diagnosis.levels == {}
