"""Every setting: its name with the unit, its default, its environment variable, and the reason for the default.

A setting comes from, in this order: the command line, the environment (`DATP_LEASE_MS=20000`), a file that the
environment names (`DATP_STORE_URL_FILE=/run/secrets/store`, for secret stores), the TOML file, the default. What a
node group shares (`datp group set`) is kept in the store and goes before all of these, so that a change reaches every
node of the group while it runs; the table says which settings may be shared.
"""

import contextlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from datp.errors import BadDefinition
from datp.model.limits import DURABILITIES, DURATION_MAX_MS, Limits, setting
from datp.model.log_level import LOG_LEVELS
from datp.model.values import printable, shown

VALUE_MAX: Final = DURATION_MAX_MS
"""Of a number: more than that is a mistake, or doesn't fit where the store keeps it."""

SECRET: Final = frozenset({"store_url", "database_url", "operator_webhook_key", "webhook_keys", "credential_keys"})
"""Settings whose values are not shown."""


@dataclass(frozen=True, kw_only=True)
class _Origin:
    given_here: frozenset[str] = frozenset()
    """No setting: the names that the command line or the environment gave, which a node group's don't replace."""


@dataclass(frozen=True, kw_only=True)
class Settings(Limits, _Origin):
    """How this process runs."""

    # ── the store
    store_url: str = setting("", "URL", "empty: `datp dev` brings its own; redis://, rediss:// or unix://")
    store_timeout_ms: int = setting(5_000, "ms", "a script takes milliseconds; a silent server is a lost one")
    partitions: int = setting(8, "partitions", "of a new store; it can't be changed later, so it leaves room to grow")

    # ── the archive
    durability: str = setting("hot", "level", "of pipelines that name none: hot, snapshot or journal", live=True)
    memory_budget_mb: int = setting(
        0, "MB", "of the store's server; 0: its maxmemory, if it has one. As it fills, sleepers leave memory sooner"
    )
    memory_look_ms: int = setting(2_000, "ms", "how often the store's memory is looked at")
    reconcile_interval_ms: int = setting(
        300_000, "ms", "how often SQL's live rows are compared with the store; after a failover too"
    )
    reconcile_batch: int = setting(500, "rows", "of one page; between two pages others get their turn")
    database_url: str = setting("", "URL", "empty: nothing is archived; sqlite:///, postgresql:// or mariadb://")
    database_timeout_ms: int = setting(30_000, "ms", "a batch takes milliseconds, but a busy disk may hold it up")
    database_connections_max: int = setting(4, "connections", "of one process; servers have some hundred for everybody")

    # ── who may
    api_key_cache_ms: int = setting(2_000, "ms", "a revoked key opens doors for so long; else every request asks SQL")
    api_key_stale_ms: int = setting(
        300_000, "ms", "while the database is down, keys that were good a moment ago stay good for so long"
    )
    api_keys_cached_max: int = setting(10_000, "keys", "those that don't exist too, so that guessing costs SQL little")

    retention_days: int = setting(
        0, "days", "of finished transactions whose pipeline says nothing of its own; 0: for ever", live=True
    )
    retention_interval_ms: int = setting(600_000, "ms", "how often what is old enough is looked for")
    retention_batch: int = setting(
        500, "transactions", "deleted in one SQL transaction, which holds up nobody for long"
    )
    retention_pause_ms: int = setting(50, "ms", "between two batches, so that archiving goes on")

    # ── the logbook
    logbook_level: str = setting(
        "info", "level", "what steps say below it is not kept: trace, debug, info, warning, error, fatal", live=True
    )
    logbook_text_max: int = setting(8_192, "characters", "of an entry: a traceback fits, a document is cut")
    logbook_buffer_max: int = setting(
        10_000, "entries", "of one process; more in one interval is dropped and counted, rather than waited for"
    )
    logbook_batch: int = setting(1_000, "entries", "of one SQL transaction, or one call")
    logbook_flush_ms: int = setting(500, "ms", "how often entries are written; so long an operator waits for them")
    logbook_store_max: int = setting(
        2_000, "entries", "of a partition, from nodes without a database, until an archiver fetches them: some MB"
    )

    # ── the node
    node_group: str = setting("main", "name", "the group that `datp dev` and the examples use")
    roles: str = setting(
        "worker,wakeup", "names", "what this process does: worker, wakeup, archive, api, webhooks", live=False
    )
    workers: int = setting(100, "slots", "asynchronous steps mostly wait; a slot costs a few kilobytes", live=True)
    threads_max: int = setting(32, "threads", "for steps that are ordinary functions; each blocks one thread")
    processes: int = setting(1, "processes", "one process uses one core")
    steps: str = setting("", "modules", "Python modules with step types, beside those found by entry point")
    app_version: str = setting("-", "text", "what the node says of the application in its registration")
    build_time: str = setting("-", "text", "what the node says of the application's build")
    http_port: int = setting(0, "port", "for /healthz and /readyz, and with the role api for all of it; 0: none")

    # ── HTTP
    http_host: str = setting("0.0.0.0", "address", "whoever probes a node, or asks it, mostly does so from outside")
    http_body_bytes_max: int = setting(1024 * 1024, "bytes", "the largest input, and as much again around it")
    http_batch_bytes_max: int = setting(16 * 1024 * 1024, "bytes", "of the body of a batch; it is held in memory whole")
    http_requests_max: int = setting(2_000, "requests", "in hand at once, besides those that wait; more are sent away")
    longpoll_default_ms: int = setting(15_000, "ms", "how long a start waits whose metadata say poll: long (seed)")
    longpoll_look_ms: int = setting(5_000, "ms", "what is waited for is looked at so often, should a hint be lost")
    longpolls_max: int = setting(20_000, "requests", "that wait at once; each keeps about 20 KiB of memory")
    longpolls_per_owner_max: int = setting(15_000, "requests", "that wait at once, so that others get their share")
    events_heartbeat_ms: int = setting(15_000, "ms", "proxies close what is silent for longer, mostly after a minute")
    reply_converter: str = setting(
        "", "module:function", "empty: replies are told as they are; else what reshapes them"
    )
    http_grace_ms: int = setting(5_000, "ms", "what is being answered when a process stops may be answered")

    # ── calling others
    outbound_networks: str = setting(
        "", "networks", "what steps and webhooks may call beside public addresses: 10.0.0.0/8,fd00::/8"
    )

    programs: str = setting(
        "", "names", "what the step program/run may run, with commas between; empty: nothing, *: anything"
    )
    credential_keys: str = setting(
        "",
        "keys",
        "credentials are encrypted with the first, the others open what they closed; `datp credential key` makes one",
    )

    # ── taking and running
    batch_size_max: int = setting(
        100, "items", "one script call stays below 2 ms, others get their turn, and it fits a socket's buffer"
    )
    batch_bytes_max: int = setting(
        8 * 1024 * 1024,
        "bytes",
        "of documents in one call: a batch of the largest would hold up the store for a second",
    )
    in_share: int = setting(8, "items", "every 8th item is a new start, so that returns can't starve them", live=True)
    idle_look_ms: int = setting(1_000, "ms", "an idle node looks by itself, should the bell be lost")
    suspect_solitude_ms: int = setting(
        100, "ms", "how long a node stays empty before and after it takes one that lost its lease", live=True
    )
    together_max: int = setting(
        16, "items", "of those that lost one lease, so many are tried together; later losses are tried one by one"
    )
    step_timeout_ms: int = setting(60_000, "ms", "a step that says nothing of its own may take this long", live=True)
    cancel_grace_ms: int = setting(5_000, "ms", "a step that is asked to end may tidy up", live=True)
    shutdown_grace_ms: int = setting(20_000, "ms", "what runs may finish before the rest is given back")

    # ── leases
    lease_ms: int = setting(15_000, "ms", "a crash delays a transaction by this and the sweep at most")
    lease_margin_ms: int = setting(3_000, "ms", "a node stops work this long before a lease that it can't renew ends")
    sweep_interval_ms: int = setting(1_000, "ms", "how often expired leases and deadlines are looked for")
    stall_max_ms: int = setting(10_000, "ms", "an event loop that stood still longer renews nothing")
    attempts_max: int = setting(5, "losses", "what kills its node this often goes to the exception list", live=True)

    # ── sleeping and waking
    wake_batch: int = setting(200, "items", "of one call; the next follows at once while sleepers are due")
    wake_interval_ms: int = setting(1_000, "ms", "how often sleepers are looked for when none was due soon")
    wake_claim_ms: int = setting(10_000, "ms", "how long a node has to restore an evicted sleeper")
    evict_after_ms: int = setting(120_000, "ms", "shorter sleeps stay in memory, and cost SQL nothing", live=True)

    # ── nodes and their administration
    heartbeat_ms: int = setting(5_000, "ms", "how often a node registers again")
    node_gone_ms: int = setting(30_000, "ms", "six heartbeats missed: the node is gone")
    definitions_look_ms: int = setting(500, "ms", "a change of pipelines is everywhere within a second")
    pipeline_test_timeout_ms: int = setting(60_000, "ms", "of test cases that are run over HTTP, all of one call")
    admin_timeout_ms: int = setting(10_000, "ms", "how long an admin event is given to nodes that don't answer")
    admin_queue_max: int = setting(100, "events", "a node that answers none of so many is not listening")

    # ── telling operators
    event_interval_ms: int = setting(1_000, "ms", "how often operator events are moved to SQL, and told to the webhook")
    event_claim_ms: int = setting(20_000, "ms", "a node's crash delays the operator events in its hands by this")
    event_repeat_ms: int = setting(60_000, "ms", "trouble that lasts is told again after this, so that its end is seen")
    watch_interval_ms: int = setting(5_000, "ms", "how often a node looks for what is missing, and at its own loops")
    watched_roles: str = setting(
        "worker,wakeup,archive,webhooks", "names", "roles that operators are told of when no live node has them"
    )
    clock_skew_max_ms: int = setting(
        2_000, "ms", "the store's clock decides; but logs and certificates don't know that"
    )
    operator_webhook: str = setting("", "URL", "operator events are posted there, signed; empty: nowhere")
    operator_webhook_key: str = setting("", "key", "whsec_…, with which they are signed; empty: they are not sent")
    operator_webhook_again_ms: int = setting(
        3_600_000, "ms", "an event that goes on happening, and isn't acknowledged, is posted again after this"
    )

    # ── transfers
    transfer_batch: int = setting(5_000, "transfers", "expired in one SQL transaction, some 0.2 s; the next follows")
    transfer_look_ms: int = setting(1_000, "ms", "how often deadlines are looked at when none is near")
    transfer_claim_ms: int = setting(15_000, "ms", "a teller's crash delays what it was to tell by this")
    follow_source: str = setting("", "name", "of a history of transfers that others append to; empty: none is followed")
    follow_transfers: str = setting("transfer", "table", "of the followed transfers: transferId, expirationDate")
    follow_history: str = setting("transferStateChange", "table", "of their state changes, to which others append")
    follow_batch: int = setting(100_000, "changes", "read by one scan; the next follows at once")
    follow_look_ms: int = setting(5_000, "ms", "how often the followed history is looked at")

    # ── webhooks
    webhook_timeout_ms: int = setting(15_000, "ms", "an answer that takes longer counts as none", live=True)
    webhook_claim_ms: int = setting(20_000, "ms", "a sender's time-out and a margin, within which it must connect")
    webhook_retries: str = setting(
        "5s,30s,2m,10m,1h,4h,12h,24h", "waits", "after the first try, which comes at once; nearly two days in all"
    )
    webhook_tries_in_store: int = setting(
        3, "tries", "after these a delivery moves to SQL, which has room for long waits"
    )
    webhook_in_flight_max: int = setting(
        2_000, "requests", "of one process; each costs a connection and some kilobytes"
    )
    webhook_per_host_max: int = setting(
        50, "requests", "at once to one host: a slow one takes no more than its share, and a small one isn't flooded"
    )
    webhook_batch: int = setting(500, "deliveries", "of one claim; the next follows while there is room")
    webhook_interval_ms: int = setting(1_000, "ms", "how often a sender looks by itself, should the bell be lost")
    webhook_dns_ms: int = setting(
        30_000, "ms", "how long a host's addresses are taken for known; each is checked anyway"
    )
    webhook_fail_limit: int = setting(10, "failures", "in a row, and a URL is paused (seed)", live=True)
    webhook_fail_period_ms: int = setting(
        120_000, "ms", "a failure so long ago doesn't count any more (seed)", live=True
    )
    webhook_pause_ms: int = setting(300_000, "ms", "how long a URL that keeps failing is left alone", live=True)
    webhook_parked_ms: int = setting(
        604_800_000, "ms", "where there is no SQL, a delivery that was given up can be sent again for a week"
    )
    webhook_log_period_ms: int = setting(
        2_592_000_000, "ms", "what became of deliveries is kept in SQL for thirty days; those under way are kept anyway"
    )
    webhook_keys: str = setting(
        "", "keys", "where there is no SQL, which has a key for each owner: with these all is signed, whsec_…,whsk_…"
    )

    # ── keeping
    external_id_period_ms: int = setting(172_800_000, "ms", "two days after the end (seed: a day or two)", live=True)
    idempotency_period_ms: int = setting(
        86_400_000, "ms", "a day: retries come within it; what must be known for longer has an externalId", live=True
    )
    archive_delay_ms: int = setting(2_000, "ms", "so that notifiedTime joins the same write", live=True)
    archive_batch: int = setting(
        1_000,
        "states",
        "of one SQL transaction: a durable commit costs some ms, and a call of the store stays below 10",
    )
    archive_lock1_ms: int = setting(5_000, "ms", "how long an archiver is given work without asking again")
    archive_lock2_ms: int = setting(7_000, "ms", "how long nobody else is given any: lock 1 and time to finish")
    archive_interval_ms: int = setting(
        250, "ms", "how often an archiver asks when nothing is due; ends of durability journal wait for it"
    )
    archive_again_ms: int = setting(
        3_600_000, "ms", "a state that SQL doesn't take stays in memory, and is tried again"
    )
    archive_claim_ms: int = setting(30_000, "ms", "an archiver's crash delays its batch by this")
    state_ttl_ms: int = setting(600_000, "ms", "an archived state stays for clients that ask again", live=True)
    metrics_flush_ms: int = setting(1_000, "ms", "how often a process's own counts are stored")


def load(
    *, environment: Mapping[str, str] = os.environ, toml: Path | None = None, given: Mapping[str, Any] | None = None
) -> Settings:
    """The settings of this process; `given` (the command line) goes before everything else."""
    values: dict[str, Any] = {}
    given_here: set[str] = set()
    if toml is not None:
        values.update(_read_toml(toml))
    for name in NAMES:
        variable = environment_variable(name)
        if environment.get(variable):
            values[name] = _parse(name, environment[variable], variable)
        elif f"{variable}_FILE" in environment:
            values[name] = _parse(name, _read_secret(f"{variable}_FILE", environment), variable)
        else:
            continue
        given_here.add(name)
    for name, value in (given or {}).items():
        if name not in FIELDS:
            raise BadDefinition(f"There is no setting {shown(name)}", field=name)
        if value is not None:
            values[name] = _parse(name, value, name)
            given_here.add(name)
    return _checked(Settings(**values, given_here=frozenset(given_here)))


def with_group(settings: Settings, shared: Mapping[str, Any]) -> Settings:
    """The settings, with those that the node group shares and that may change while nodes run."""
    known = {name: _parse(name, value, name) for name, value in shared.items() if name in LIVE - settings.given_here}
    return _checked(replace(settings, **known))


def check_shared(values: Mapping[str, Any]) -> dict[str, Any]:
    """What a node group may share; raises BadDefinition for anything else."""
    checked: dict[str, Any] = {}
    for name, value in values.items():
        if name not in LIVE and name != "description":
            changeable = ", ".join(sorted(LIVE))
            raise BadDefinition(
                f"{name} is not a setting that a node group shares; these are: {changeable}", field=name
            )
        checked[name] = printable(value) if name == "description" else _parse(name, value, name)
    _checked(replace(Settings(), **{name: value for name, value in checked.items() if name in LIVE}))
    return checked


def environment_variable(name: str) -> str:
    return f"DATP_{name.upper()}"


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        data = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadDefinition(f"The settings file {path} can't be read: {error}") from None
    unknown = sorted(set(data) - set(NAMES))
    if unknown:
        raise BadDefinition(f"The settings file {path} has an unknown setting: {unknown[0]}", field=unknown[0])
    return {name: _parse(name, value, f"{name} in {path}") for name, value in data.items()}


def _read_secret(variable: str, environment: Mapping[str, str]) -> str:
    try:
        return Path(environment[variable]).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadDefinition(f"{variable} names a file that can't be read: {error}") from None


def _parse(name: str, value: Any, said: str) -> Any:
    wanted = type(DEFAULTS[name])
    if wanted is int and isinstance(value, str):
        with contextlib.suppress(ValueError):
            return int(value.replace("_", ""))
    if isinstance(value, wanted) and not isinstance(value, bool):
        return value
    kind = "a whole number" if wanted is int else "a text"
    raise BadDefinition(f"{said} must be {kind}, not {shown(value)}", field=name)


def _checked(settings: Settings) -> Settings:
    for name in NAMES:
        value = getattr(settings, name)
        if isinstance(value, int) and value < (0 if name in MAY_BE_ZERO else 1):
            raise BadDefinition(f"{name} must be at least {0 if name in MAY_BE_ZERO else 1}, not {value}", field=name)
        if isinstance(value, int) and value > VALUE_MAX:
            raise BadDefinition(f"{name} must be at most {VALUE_MAX}, not {shown(value)}", field=name)
    if not 1 <= settings.partitions <= 1024:
        raise BadDefinition(f"partitions must be 1 to 1024, not {settings.partitions}", field="partitions")
    if settings.durability not in DURABILITIES:
        raise BadDefinition(
            f"durability must be one of {', '.join(DURABILITIES)}, not {shown(settings.durability)}", field="durability"
        )
    if settings.logbook_level not in LOG_LEVELS:
        raise BadDefinition(
            f"logbook_level must be one of {', '.join(LOG_LEVELS)}, not {shown(settings.logbook_level)}",
            field="logbook_level",
        )
    if settings.lease_margin_ms * 2 > settings.lease_ms:
        raise BadDefinition(
            f"lease_margin_ms ({settings.lease_margin_ms}) must be at most half of lease_ms ({settings.lease_ms})",
            field="lease_margin_ms",
        )
    if settings.webhook_claim_ms <= settings.webhook_timeout_ms:
        raise BadDefinition(
            f"webhook_claim_ms ({settings.webhook_claim_ms}) must be more than webhook_timeout_ms"
            f" ({settings.webhook_timeout_ms}): a sender must be able to wait for an answer under its claim",
            field="webhook_claim_ms",
        )
    return settings


FIELDS: Final = {field.name: field for field in fields(Settings) if field.metadata}
NAMES: Final = tuple(FIELDS)
DEFAULTS: Final = {name: field.default for name, field in FIELDS.items()}
LIVE: Final = frozenset(name for name, field in FIELDS.items() if field.metadata["live"])
MAY_BE_ZERO: Final = frozenset(
    {
        "workers",
        "http_port",
        "suspect_solitude_ms",
        "archive_delay_ms",
        "memory_budget_mb",
        "retention_days",
        "retention_pause_ms",
    }
)
