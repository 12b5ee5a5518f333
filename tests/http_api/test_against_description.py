"""The API does what its own description says: schemathesis asks whatever that allows, and more that it doesn't."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from whole import Open, Whole

from datp.archive.keyring import Keyring

SEED: Final = "20261118"

CHECKS: Final = ",".join(
    [
        *("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance"),
        *("response_schema_conformance", "negative_data_rejection", "unsupported_method", "ignored_auth"),
        *("missing_required_header", "allow_header_conformance"),
    ]
)


async def run_schemathesis(whole: Whole, folder: Path, arguments: Sequence[str]) -> tuple[int, str]:
    """Its exit code, and what it said; with the key of an administrator."""
    assert whole.eng.archive is not None
    _, key = await Keyring(whole.eng.archive.database).create("acme", "admin", "", now_ms=1)
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{whole.client.url}/openapi.json", "--checks", CHECKS),
        *("--header", f"Authorization: Bearer {key}", "--continue-on-failure", "--no-color", "--seed", SEED),
        *arguments,
    ]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=dict(os.environ)
    )
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def quick(input: Any) -> Any:
    return input


async def opened(open_whole: Open) -> Whole:
    whole = await open_whole(admin_timeout_ms=200)
    whole.eng.step("test/quick", quick)
    await whole.eng.pipeline("quick", "test/quick")
    return whole


async def test_what_is_answered_is_as_described(open_whole: Open, tmp_path: Path) -> None:
    whole = await opened(open_whole)
    client_routes = [
        "--include-path-regex",
        "^/v1/(transactions|external-ids|transaction-types)",
        "--max-examples",
        "5",
    ]
    code, said = await run_schemathesis(
        whole, tmp_path, [*client_routes, "--phases", "examples,coverage,fuzzing", "--exclude-path-regex", "events"]
    )
    assert code == 0, said[-6_000:]


@pytest.mark.long
async def test_what_is_answered_is_as_described_for_ten_minutes(open_whole: Open, tmp_path: Path) -> None:
    whole = await opened(open_whole)
    code, said = await run_schemathesis(whole, tmp_path, ["--max-time", "600", "--exclude-path-regex", "events"])
    print(said[-3_000:])
    assert code == 0, said[-12_000:]
