"""Run a program on the node: an argument list and no shell, with limits on its time and on what it says."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from datp import end_with_parent
from datp.errors import BadDefinition, BadRequest, TooLarge
from datp.model.credential import Credential, Secret
from datp.model.expressions import Scope, as_text, render
from datp.model.outcome import Failed, Outcome, Success
from datp.model.pipeline import Duration, duration_ms
from datp.model.values import is_too_deep, printable, shown
from datp.steps.context import Context
from datp.steps.contract import Example, step
from datp.steps.definition import CredentialName, Definition, TemplateJson, TemplateText, says

ANY: Final = "*"
"""In the setting `programs`: whatever a definition names."""

CHUNK_BYTES: Final = 65_536
ARGUMENT_LENGTH_MAX: Final = 100_000
"""Characters; Linux takes 128 KiB of one argument."""

KILL_WITHIN_S: Final = 2.0
"""Between asking a program to end and ending it."""


class ProgramRunDefinition(Definition):
    program: Annotated[str, says("its name or path; the setting `programs` must allow it")]
    arguments: Annotated[
        list[TemplateText], says("each is one argument, whatever is in it; what comes to null is left out")
    ] = msgspec.field(default_factory=list)
    stdin: Annotated[TemplateJson, says("what it reads; what is no text is written as JSON")] = msgspec.UNSET
    environment: Annotated[dict[str, TemplateText], says("variables, beside PATH, LANG and HOME")] = msgspec.field(
        default_factory=dict
    )
    credentials: Annotated[
        dict[str, CredentialName], says("variables that hold a credential of kind secret, by its name")
    ] = msgspec.field(default_factory=dict)
    read: Annotated[Literal["text", "json", "lines"], says("how its output is read")] = "text"
    ok_codes: Annotated[list[int], says("exit codes with which it has succeeded")] = msgspec.field(
        default_factory=lambda: [0]
    )
    output: Annotated[TemplateJson, says("the step's output, with `result` in its scope; default: `result`")] = (
        msgspec.UNSET
    )
    output_max: Annotated[int, msgspec.Meta(ge=1, le=16_777_216), says("bytes that it may write, to each of both")] = (
        65_536
    )
    timeout: Annotated[Duration, says("how long it may run")] = "30s"

    def check(self) -> None:
        if not self.program or "\0" in self.program:
            raise BadDefinition("program: it has no name", field="program")
        for name in (*self.environment, *self.credentials):
            if not name.isidentifier() or not name.isascii():
                raise BadDefinition(f"environment: {shown(name)} is not the name of a variable", field="environment")
        if set(self.environment) & set(self.credentials):
            raise BadDefinition("credentials: a variable is in environment too", field="credentials")


class Ended(NamedTuple):
    """How a program ended."""

    code: int
    stdout: bytes
    stderr: bytes


@step(
    "program/run",
    default_definition={"program": "date", "arguments": ["-u", "+%F"], "timeout": "30s"},
    examples=[
        Example(
            "Sort lines, as only `sort` can.",
            {
                "program": "sort",
                "arguments": ["-r"],
                "stdin": "${join('\n', input.names)}",
                "read": "lines",
                "output": "${result.stdout}",
            },
            input={"names": ["ada", "zoe", "bob"]},
            output=["zoe", "bob", "ada"],
        ),
        Example(
            "An argument is one argument, whatever is in it.",
            {"program": "printf", "arguments": ["%s", "${input.text}"], "output": "${result.stdout}"},
            input={"text": "$(whoami); rm -rf / *"},
            output="$(whoami); rm -rf / *",
        ),
    ],
)
async def program_run(context: Context, definition: ProgramRunDefinition) -> Outcome:
    """Runs a program on the node, by an argument list and without a shell.

    Only programs that the operator names in the setting `programs` are run. A program has an empty directory of its
    own, which is its HOME too, and nothing of the node's environment but PATH and LANG. When its time is over, when it
    writes more than it may, and when the transaction is cancelled, it is ended with everything that it has started.

    `result` is `{code, stdout, stderr}`. An exit code that is not among `okCodes` ends the step `failed`. A value from
    the input that begins with `-` may be read as an option: put `--` before it, where the program knows that.
    """
    path = _find(definition.program, context.tools.settings.programs)
    scope = context.scope
    secrets = {name: await _secret(context, wanted) for name, wanted in definition.credentials.items()}
    arguments, given, environment = _prepare(definition, scope)
    environment |= {name: secret.text for name, secret in secrets.items()}
    timeout_s = duration_ms(definition.timeout, "timeout") / 1000
    with tempfile.TemporaryDirectory(prefix="datp-run-", ignore_cleanup_errors=True) as directory:
        home = {"HOME": directory, "PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
        try:
            async with asyncio.timeout(timeout_s):
                ended = await _run([path, *arguments], given, home | environment, Path(directory), definition)
        except TimeoutError:
            note = f"{definition.program} took longer than {timeout_s:g} s, and was ended"
            return Failed({"error": note}, note)
    result = _result(ended, definition, list(secrets.values()))
    if ended.code not in definition.ok_codes:
        note = f"{definition.program} ended with code {ended.code}"
        return Failed({"error": note, **result}, note)
    if definition.output is msgspec.UNSET:
        return Success(result)
    return Success(render(definition.output, scope.having(result=result)))


def _find(program: str, allowed: str) -> str:
    """Where the program is; raises BadRequest when it may not be run, or isn't there."""
    names = {part.strip() for part in allowed.split(",")}
    if ANY not in names and program not in names:
        raise BadRequest(f"the program {program} may not be run here; an operator may allow it in the setting programs")
    path = shutil.which(program)
    if path is None:
        raise BadRequest(f"there is no program {program} on this node")
    return path


async def _secret(context: Context, name: str) -> Secret:
    credential = await context.credential(name)
    if not isinstance(credential, Secret):
        raise BadRequest(f"the credential {name} is of kind {credential.kind}; a program is given one of kind secret")
    return credential


def _prepare(definition: ProgramRunDefinition, scope: Scope) -> tuple[list[str], bytes, dict[str, str]]:
    arguments = [as_text(value) for text in definition.arguments if (value := render(text, scope)) is not None]
    environment = {name: as_text(render(text, scope)) for name, text in definition.environment.items()}
    for text in (*arguments, *environment.values()):
        if "\0" in text or len(text) > ARGUMENT_LENGTH_MAX:
            raise BadRequest(f"a program can't be given {shown(text)}: it is too long, or holds a NUL")
    given = "" if definition.stdin is msgspec.UNSET else as_text(render(definition.stdin, scope))
    return arguments, given.encode(), environment


async def _run(
    command: list[str], given: bytes, environment: dict[str, str], directory: Path, definition: ProgramRunDefinition
) -> Ended:
    """The program has run to its end; whatever stops us ends it too, with all that it has started."""
    if sys.platform == "linux":
        # So it doesn't outlive a node that is killed.
        command = [sys.executable, "-S", "-E", end_with_parent.__file__, str(os.getpid()), *command]
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=directory,
            env=environment,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise BadRequest(f"the program {definition.program} can't be started: {error}") from None
    assert process.stdout is not None and process.stderr is not None
    work = [
        asyncio.ensure_future(one)
        for one in (
            _read(process.stdout, definition),
            _read(process.stderr, definition),
            _write(process, given),
        )
    ]
    try:
        await asyncio.gather(*work)
        code = await process.wait()
        return Ended(code, work[0].result() or b"", work[1].result() or b"")
    finally:
        for one in work:
            one.cancel()
        await asyncio.shield(_end(process))


async def _end(process: asyncio.subprocess.Process) -> None:
    """Nothing is left of the program's group."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), KILL_WITHIN_S)
    _signal(process, signal.SIGKILL)  # of what it started, and left behind
    await process.wait()


def _signal(process: asyncio.subprocess.Process, how: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, how)


async def _read(stream: asyncio.StreamReader, definition: ProgramRunDefinition) -> bytes:
    parts, size = [], 0
    while part := await stream.read(CHUNK_BYTES):
        parts.append(part)
        size += len(part)
        if size > definition.output_max:
            raise TooLarge(f"{definition.program} wrote more than outputMax ({definition.output_max} bytes)")
    return b"".join(parts)


async def _write(process: asyncio.subprocess.Process, given: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it doesn't want to hear more
        process.stdin.write(given)
        await process.stdin.drain()
        process.stdin.close()


def _result(ended: Ended, definition: ProgramRunDefinition, secrets: list[Credential] | list[Secret]) -> dict[str, Any]:
    texts = [raw.decode(errors="replace") for raw in (ended.stdout, ended.stderr)]
    for secret in secrets:
        texts = [secret.hide(text) for text in texts]
    stdout: Any = printable(texts[0], len(texts[0]))
    if definition.read == "lines":
        stdout = stdout.splitlines()
    elif definition.read == "json" and ended.code in definition.ok_codes:
        try:
            stdout = msgspec.json.decode(stdout)
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadRequest(f"{definition.program} did not write JSON: {error}") from None
        if is_too_deep(stdout):
            raise BadRequest(f"{definition.program} wrote JSON that is nested too deep")
    return {"code": ended.code, "stdout": stdout, "stderr": printable(texts[1], len(texts[1]))}
