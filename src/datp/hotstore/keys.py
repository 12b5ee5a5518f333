"""Every key: its name, type, contents, lifetime and writers. The reference page is made from this table.

A key carries its partition's hash tag, so that one script call touches one slot. `<…>` is filled in by the script.
"""

import binascii
from functools import cache
from typing import Final, Literal

import msgspec

SLOTS: Final = 16384


class Key(msgspec.Struct, frozen=True):
    name: str
    """The word by which script headers call it."""
    template: str
    """What stands in the store; `{p}` is the partition's tag."""
    type: Literal["hash", "list", "zset", "set", "string", "channel"]
    contents: str
    lifetime: str

    @property
    def parameters(self) -> list[str]:
        """The names in `<…>`."""
        return [part.split(">")[0] for part in self.template.split("<")[1:]]


KEYS: Final = (
    Key(
        "meta",
        "metaH:{p}",
        "hash",
        "who the store is: identity (store id, epoch, partitions, schema), clock (`held` under simulation);"
        " renewed_at, grace_until and grace_for for reaping; evict_percent, evict_until and full_until for the memory"
        " budget",
        "for ever",
    ),
    Key(
        "state",
        "stateH:{p}:<tx_id>",
        "hash",
        "one transaction: its document (`state`) and, beside it, what scripts need",
        "while live; once final and archived, until its TTL",
    ),
    Key(
        "switches",
        "switchH:{p}:<tx_id>",
        "hash",
        "switch → `<version> <JSON>`",
        "as its transaction's state, but gone at completion",
    ),
    Key(
        "started",
        "startedZ:{p}",
        "zset",
        "id → when it was started: what memory holds and SQL may not, in the order of lists; branches are not in it",
        "until SQL has its end, or it is evicted",
    ),
    Key("joining", "joiningZ:{p}", "zset", "id → when it began to join", "while joining"),
    Key("join", "joinH:{p}:<tx_id>", "hash", "branch → its result, '' while it is open", "while the parent joins"),
    Key(
        "queue",
        "q<queue>L:{p}:<group>",
        "list",
        "ids of queued transactions, next first: qInL to start, qOutL to return",
        "while not empty",
    ),
    Key(
        "withdrawn",
        "withdrawnS:{p}",
        "set",
        "`<queue> <group> <tx_id>`: an id that still stands in a list, but was ended or moved while it was queued;"
        " taking it drops it",
        "until the list's copy is taken",
    ),
    Key(
        "share", "shareH:{p}", "hash", "group → items taken while both queues had some; every k-th is `in`", "for ever"
    ),
    Key(
        "bell",
        "bellL:{p}:<group>",
        "list",
        "one element while there is work for an idle node to look at",
        "until heard, ten minutes at most",
    ),
    Key(
        "turn",
        "turnH:{p}:<node>",
        "hash",
        "lane → its last dequeue's number and the ids that it took, so that a lost reply can be asked for again",
        "an hour after the node's last turn",
    ),
    Key("processing", "processingZ:{p}", "zset", "id → the end of its lease", "while running"),
    Key("running", "runningZ:{p}", "zset", "id → when it was dequeued", "while running"),
    Key(
        "sleeping",
        "sleepingZ:{p}",
        "zset",
        "id → when it wakes: min(wake or time-out, deadline), +inf for none; stays when the state is evicted",
        "while sleeping or waiting",
    ),
    Key("evicted", "evictedH:{p}", "hash", "id → the version that SQL holds of an evicted sleeper", "while evicted"),
    Key("deadlines", "deadlineZ:{p}", "zset", "id → its deadline, or when a verdict is enforced", "while it applies"),
    Key("exceptions", "exceptionZ:{p}", "zset", "id → when it was parked", "until an operator acts"),
    Key(
        "reasons",
        "exceptionH:{p}",
        "hash",
        "id → why it was parked: JSON {reason, from, at}",
        "until an operator acts",
    ),
    Key(
        "to_archive",
        "toArchiveZ:{p}",
        "zset",
        "id → when it is to be archived, or when a claim ends",
        "until acknowledged",
    ),
    Key(
        "archive_lock1",
        "toArchiveLock1:{p}",
        "string",
        "`<node> <until>`: who is given states to archive",
        "until its time, renewed by each call",
    ),
    Key(
        "archive_lock2",
        "toArchiveLock2:{p}",
        "string",
        "`<node> <until>`: how long nobody else is given any",
        "until its time, renewed by each call",
    ),
    Key(
        "log",
        "logL:{p}",
        "list",
        "what steps said on nodes without a database, JSON, the oldest first",
        "until an archiver fetches it; logbook_store_max of them",
    ),
    Key(
        "webhook",
        "webhookH:{p}:<tx_id>",
        "hash",
        "the delivery that is owed: who is told (webhook), of what (kind, the reply's fields), tries (attempt), the"
        " sender that has it (claim), parked",
        "until delivered or given up",
    ),
    Key(
        "webhook_chain",
        "webhookL:{p}:<tx_id>",
        "list",
        "deliveries that wait for the first one, in order, as MessagePack",
        "while not empty",
    ),
    Key(
        "webhooks",
        "webhooksZ:{p}",
        "zset",
        "id → when its delivery is tried next, when a claim ends, or until when one that was given up is kept",
        "until delivered or given up",
    ),
    Key(
        "url_trouble",
        "webhookFailH:{p}:<id>",
        "hash",
        "a webhook's URL that fails: url, failures (in a row), last_at, paused_until, gone, comment",
        "until it answers, or webhook_fail_period_ms; for ever when gone",
    ),
    Key("url_troubles", "webhookFailZ:{p}", "zset", "id of a URL in trouble → until when it is kept", "as url_trouble"),
    Key(
        "idempotent",
        "idempotentStart:{p}:<owner>:<idempotency>",
        "string",
        "`<tx_id> <hash of the request>`: what an Idempotency-Key has started; its partition is the key's",
        "idempotency_period_ms",
    ),
    Key(
        "external_id",
        "externalId:{p}:<owner>:<external_id>",
        "string",
        "`<tx_id> <hash of the request>`",
        "while the transaction lives, then external_id_period_ms",
    ),
    Key("metric", "metric<series>H:{p}:<slot>", "hash", "counter → count, in one time slot", "the series' retention"),
    Key("flushed", "flushed:{p}:<process>", "string", "the number of the process's last flush of counts", "a day"),
    Key("groups", "groupsS:{p}", "set", "node groups that something was ever queued for", "for ever"),
    Key("nodes", "nodeZ:{p}", "zset", "node → when it is gone unless it registers again", "node_gone_ms"),
    Key("node", "nodeH:{p}", "hash", "node → its registration, JSON", "node_gone_ms"),
    Key(
        "admin",
        "qAdminL:{p}:<node>",
        "list",
        "events for a node, each until it is answered or expires",
        "until answered",
    ),
    Key("answers", "answerH:{p}:<event_id>", "hash", "the answer to an admin event", "ten minutes"),
    Key("last_admin", "lastAdminH:{p}", "hash", "node → the last admin event that it answered, JSON", "node_gone_ms"),
    Key(
        "operator_event",
        "operatorEventH:{p}:<event_id>",
        "hash",
        "what operators are to be told: code, subject, text, times, first_at, last_at",
        "until SQL holds it",
    ),
    Key(
        "operator_events",
        "operatorEventsZ:{p}",
        "zset",
        "operator event → when it is to be moved to SQL, or when a claim ends",
        "until SQL holds it",
    ),
    Key(
        "pipeline",
        "pipelineH:{p}:<pipeline>",
        "hash",
        "`active` → version; `v:<version>` → definition; `change` → the number in SQL of its last activation",
        "for ever",
    ),
    Key(
        "pipelines",
        "pipelinesH:{p}",
        "hash",
        "pipeline → active version; `:changes` counts changes, `:published` is the last one of SQL",
        "for ever",
    ),
    Key(
        "node_group",
        "nodeGroupH:{p}",
        "hash",
        "node group → its settings, JSON; `:change:<group>` → the number in SQL of its last change; `:changes` and"
        " `:published` as of pipelines",
        "for ever",
    ),
    Key(
        "notify",
        "datp-notify:{p}",
        "channel",
        "`<tx_id> <status> <sequence>` of each change, separated by newlines; a hint",
        "-",
    ),
)

BY_NAME: Final = {key.name: key for key in KEYS}


@cache
def tags(partitions: int) -> tuple[str, ...]:
    """Each partition's hash tag; their slots are evenly spaced, so that primaries get even shares.

    `{0}` … `{15}` on three primaries would fall 6/6/4. A tag is the partition's number, with a suffix that brings
    its slot into the partition's own stretch of the slot space.
    """
    width = SLOTS / partitions
    return tuple(_tag(index, width) for index in range(partitions))


def _tag(index: int, width: float) -> str:
    low, high = width * (index + 0.25), width * (index + 0.75)
    suffix = 0
    while True:
        tag = f"{index}.{suffix}" if suffix else str(index)
        if low <= slot_of(tag) < high or (width < 2 and slot_of(tag) == int(low)):
            return f"{{{tag}}}"
        suffix += 1


def slot_of(tag: str) -> int:
    """The cluster slot of a key whose hash tag this is."""
    return binascii.crc_hqx(tag.encode(), 0) % SLOTS


def key(name: str, tag: str, **parts: str) -> str:
    """The full name of a key."""
    template = BY_NAME[name].template.replace("{p}", tag)
    for part, value in parts.items():
        template = template.replace(f"<{part}>", value)
    return template
