"""The examination: everything is looked at, and what can't be reached is a finding too."""

import time
from collections.abc import Sequence

import msgspec

from datp.api.admin import live_nodes
from datp.api.listing import count_queues
from datp.archive import migrate
from datp.archive.database import Database, KnownStore
from datp.definitions import Definitions
from datp.doctor.databases import DatabaseFacts, check_database, is_durable, no_database, unreachable
from datp.doctor.deployment import check_durability, check_groups, check_nodes
from datp.doctor.finding import Finding, Level, trouble
from datp.doctor.servers import check_archive_keeps_up, check_server, loss_of
from datp.errors import DatabaseError, DatpError, StoreLost
from datp.hotstore.invariants import broken_invariants
from datp.hotstore.server_facts import ServerFacts, server_facts
from datp.hotstore.store import Store
from datp.model.pipeline import PipelineDefinition


class Diagnosis(msgspec.Struct, rename="camel"):
    """What was found, and what each level of durability comes to here."""

    findings: list[Finding]
    levels: dict[str, str]

    @property
    def troubles(self) -> int:
        return sum(finding.level == Level.TROUBLE for finding in self.findings)


async def examine(store: Store, database: Database | None, *, invariants: bool = False) -> Diagnosis:
    """The whole deployment is looked at; nothing is changed."""
    findings: list[Finding] = []
    servers = await _look_at_store(store, findings)
    in_sql = await _look_at_database(store if servers else None, database, findings)
    if servers:
        await _look_at_work(store, database, servers, findings)
        if invariants:
            findings += [
                trouble(
                    "invariants",
                    sentence,
                    "something stands where it must not",
                    "keep the store's files, and report it",
                )
                for sentence in await broken_invariants(store)
            ]
    return Diagnosis(findings, levels(servers, in_sql))


async def _look_at_store(store: Store, findings: list[Finding]) -> list[ServerFacts]:
    """Its servers; none when it can't be used."""
    try:
        await store.open()
        servers = await server_facts(store)
    except DatpError as error:
        is_lost = isinstance(error, StoreLost)
        findings.append(
            trouble(
                "the store",
                str(error),
                "nothing can be started, and nothing runs",
                "if it was lost: datp rebuild"
                if is_lost
                else "see whether its server runs, and whether the URL is right",
            )
        )
        return []
    for one in servers:
        findings += check_server(one, store.settings)
    return servers


async def _look_at_database(
    store: Store | None, database: Database | None, findings: list[Finding]
) -> DatabaseFacts | None:
    if database is None:
        findings.append(no_database())
        return None
    try:
        facts = await _database_facts(database)
    except DatabaseError as error:
        findings.append(unreachable(str(error)))
        return None
    findings += check_database(facts, _known(store), database.settings)
    return facts


async def _database_facts(database: Database) -> DatabaseFacts:
    migrations = await migrate.status(database.driver)
    has_tables = any(one.applied_at is not None for one in migrations)
    before_ms = time.time() * 1000
    now_ms = await database.now_ms()
    after_ms = time.time() * 1000
    ahead_ms = 0.0 if before_ms <= now_ms <= after_ms else now_ms - (before_ms if now_ms < before_ms else after_ms)
    return DatabaseFacts(
        await database.ping(), migrations, await database.known_store() if has_tables else None, ahead_ms
    )


def _known(store: Store | None) -> KnownStore | None:
    if store is None:
        return None
    store_id, epoch, *_ = store.identity.split("/")
    return KnownStore(store_id, int(epoch), store.partitions)


async def _look_at_work(
    store: Store, database: Database | None, servers: Sequence[ServerFacts], findings: list[Finding]
) -> None:
    definitions = Definitions(store)
    await definitions.reload()
    nodes = await live_nodes(store)
    queues = await count_queues(store, definitions.groups())
    pipelines = await _active(definitions)
    findings += check_nodes(nodes, queues, has_archive=database is not None)
    findings += check_groups(nodes, queues, pipelines)
    by_level: dict[str, list[str]] = {level: [] for level in ("hot", "snapshot", "journal")}
    for pipeline in pipelines:
        by_level[pipeline.durability or store.settings.durability].append(pipeline.name)
    findings += check_durability(by_level, has_archive=database is not None, default=store.settings.durability)
    if database is not None:
        for one in servers:
            findings += check_archive_keeps_up(one)


async def _active(definitions: Definitions) -> list[PipelineDefinition]:
    """The active version of each pipeline."""
    active = {name: version for name, version in (await definitions.pipelines()).items() if version}
    await definitions.load(active.items())
    return [definitions.pipeline(name, version) for name, version in active.items()]


def levels(servers: Sequence[ServerFacts], in_sql: DatabaseFacts | None) -> dict[str, str]:
    """What each level of durability comes to: what of what was told may be taken back, and when."""
    if not servers:
        return {}
    losses = [loss_of(one) for one in servers]
    worst = next(
        (
            loss
            for loss in ("everything", "everything since its last snapshot", "some 30 seconds", "the last second")
            if loss in losses
        ),
        "nothing",
    )
    replicas = min(int(one.info.get("connected_slaves", 0)) for one in servers)
    machine = "what its replicas had not received yet" if replicas else "everything that SQL doesn't have"
    hot = f"a crash of the store's machine takes back {worst}; its loss, {machine}"
    if in_sql is None:
        return {"hot": hot, "snapshot": "as hot: there is no archive", "journal": "refused: there is no archive"}
    durable = is_durable(in_sql.described)
    return {
        "hot": f"{hot}. SQL has what ended, and what sleeps or waits long",
        "snapshot": f"{hot}. SQL also has the state at every requeue, child's return and checkpoint",
        "journal": "nothing that was answered is lost, even with the store"
        if durable
        else "nothing that was answered is lost with the store; a crash of the database's machine takes back its last"
        " commits",
    }
