"""What a credential holds is used by a step, and stands nowhere else: not in the store, SQL, a log or a reply."""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from back_end import BackEnd
from servers import Server
from worker.support import Engine, engine

from datp.api.transactions import Shown
from datp.archive import migrate
from datp.archive.credentials import Credentials, new_key, parse_keys
from datp.archive.database import Database
from datp.model.credential import Basic, Bearer, DatabaseAccess, Header, Secret
from datp.settings import Settings
from datp.steps import Context, Failed

SECRET = 'h1dden/"w0rd"+ä'
FORMS = [SECRET, quote(SECRET, safe=""), '\\"w0rd\\"', "w0rd", base64.b64encode(SECRET.encode()).decode()]


@pytest.fixture
def back_end() -> Iterator[BackEnd]:
    with BackEnd().running() as running:
        yield running


@pytest.fixture
async def eng(valkey_server: Server, tmp_path: Path) -> AsyncIterator[Engine]:
    """An engine with an archive that has credentials."""
    keys = new_key()
    url = f"sqlite:///{tmp_path}/archive.sqlite"
    settings = Settings(
        partitions=2,
        database_url=url,
        credential_keys=keys,
        outbound_networks="127.0.0.0/8",
        programs="sh",
        durability="journal",
        archive_delay_ms=0,
        archive_interval_ms=20,
        roles="worker,wakeup,archive",
    )
    database = Database(url, settings)
    await migrate.up(database.driver)
    credentials = Credentials(database, parse_keys(keys))
    await credentials.save("bearer", Bearer("tok-h1dden-w0rd"), now_ms=1)
    await credentials.save("basic", Basic("ada", SECRET), now_ms=1)
    await credentials.save("header", Header("X-Api-Key", "key-h1dden-w0rd"), now_ms=1)
    await credentials.save("program", Secret("prg-h1dden-w0rd"), now_ms=1)
    await credentials.save("away", DatabaseAccess("postgresql://ada:h1dden-w0rd@127.0.0.1:1/x"), now_ms=1)
    await credentials.save("nowhere", DatabaseAccess("sqlite:////h1dden-w0rd/x.sqlite"), now_ms=1)
    await credentials.save("nonsense", DatabaseAccess("oracle://ada:h1dden-w0rd@x"), now_ms=1)
    await database.close()
    valkey_server.flush()
    async with engine(valkey_server.url, settings) as opened:
        yield opened


def everything_in(server: Server) -> bytes:
    """All that the store holds, as bytes."""
    client = server.client()
    found: list[Any] = []
    for key in client.keys("*"):
        kind = client.type(key)
        kind = kind.decode() if isinstance(kind, bytes) else kind
        if kind == "hash":
            found += [part for pair in client.hgetall(key).items() for part in pair]
        elif kind == "list":
            found += client.lrange(key, 0, -1)
        elif kind == "zset":
            found += client.zrange(key, 0, -1)
        elif kind == "set":
            found += list(client.smembers(key))
        else:
            found.append(client.get(key) or b"")
    return b"\n".join(part if isinstance(part, bytes) else str(part).encode() for part in found)


async def reveals(context: Context, input: Any) -> Any:
    """A step that is careless: it logs, reports and raises the credential itself."""
    credential = await context.credential("basic")
    context.log.info("using %s, %r, %s", credential, credential, [credential])
    context.report_progress({"using": str(credential)})
    if input.get("raise"):
        raise RuntimeError(f"could not use {credential!r}")
    return Failed({"credential": repr(credential)}, f"{credential}")


async def test_a_credential_stands_nowhere(
    eng: Engine, valkey_server: Server, back_end: BackEnd, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    eng.step("test/reveals", reveals)
    steps: dict[str, Any] = {
        "works": {"url": f"{back_end.url}/items/pen", "credential": "bearer"},
        "is-repeated": {"url": f"{back_end.url}/repeats", "credential": "basic", "output": "${response}"},
        "fails": {"url": f"{back_end.url}/repeats", "credential": "header", "onError": "failed",
                  "classify": [{"type": "default", "classification": "error"}]},
        "is-cut": {"url": f"{back_end.url}/drops", "credential": "basic"},
        "is-refused": {"url": "http://10.0.0.1/", "credential": "basic"},
    }  # fmt: skip
    for name, definition in steps.items():
        await eng.pipeline(name, {"step": "http/call", "with": definition})
    for name in ("away", "nowhere", "nonsense"):
        select = {"database": name, "statement": "SELECT 1 AS one", "retries": 0}
        await eng.pipeline(name, {"step": "sql/run", "with": select})
    tells = {"program": "sh", "arguments": ["-c", "echo it is $T; echo $T >&2"], "credentials": {"T": "program"}}
    await eng.pipeline("program", {"step": "program/run", "with": tells})
    await eng.pipeline("careless", {"step": "test/reveals", "retry": {"attemptsMax": 2, "backoff": {"firstMs": 1}}})
    await eng.node()
    ids = [await eng.start(name) for name in steps]
    ids += [await eng.start(name) for name in ("away", "nowhere", "nonsense", "program")]
    ids += [await eng.start("careless", {"raise": True}), await eng.start("careless", {"raise": False})]
    replies = [await eng.final(tx_id) for tx_id in ids]
    assert [reply.status for reply in replies] == [
        *("success", "success", "failed", "failed", "failed"),
        *("internal-error", "failed", "failed", "success"),
        *("internal-error", "failed"),
    ]
    assert [asked.headers.get("Authorization", "")[:6] for asked in back_end.asked[:2]] == ["Bearer", "Basic "]
    shown: list[Shown] = [await eng.transactions.show(tx_id) for tx_id in ids]
    said = "\n".join(record.getMessage() + str(record.exc_text or "") for record in caplog.records)
    await asyncio.gather(*(node.stop() for node in eng.nodes))
    seen = {
        "the store": everything_in(valkey_server),
        "SQL": b"".join(path.read_bytes() for path in tmp_path.iterdir()),
        "a log": said.encode(),
        "a reply": repr(replies).encode(),
        "the flow": repr(
            [[bytes(e[s] or b"") for s in ("input", "output")] for one in shown for e in one.flow]
        ).encode(),
    }
    assert b"<credential: basic>" in seen["a log"]
    for where, contents in seen.items():
        assert contents, where
        for form in (*FORMS, "h1dden"):
            assert form.encode() not in contents, f"{form} stands in {where}"
