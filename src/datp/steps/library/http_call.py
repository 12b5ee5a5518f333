"""Call somebody's HTTP API: a request from the definition, and a reading of what the answer means."""

import asyncio
import random
import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from datp import __version__
from datp.errors import BadDefinition, BadRequest, TooLarge
from datp.model.backoff import Backoff
from datp.model.credential import Credential
from datp.model.expressions import Scope, as_text, parse_template, render
from datp.model.outcome import Aborted, Failed, Outcome, RetryLater, Success
from datp.model.pipeline import Duration, duration_ms
from datp.model.values import is_too_deep, printable, shown
from datp.outbound import check_url, refusal
from datp.steps.context import Context
from datp.steps.contract import Example, step
from datp.steps.definition import CredentialName, Definition, TemplateJson, TemplateText, says
from datp.steps.library.response_classifier import (
    NO_ANSWER,
    UNKNOWN_HOST,
    Answer,
    Classification,
    Classified,
    ResponseRule,
    classify,
    is_pattern,
    matches_status,
)

if TYPE_CHECKING:
    import aiohttp

After = Literal["failed", "aborted", "continue"]

HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
OURS: Final = frozenset({"host", "content-length", "transfer-encoding", "connection", "te", "upgrade", "expect"})
"""Headers that say how a request is sent, which a definition doesn't decide."""

WAIT_MAX_MS: Final = 3_600_000
"""How long a server may ask us to wait, by Retry-After."""

CHUNK_BYTES: Final = 65_536

_ORIGIN = re.compile(r"https?://[^/?#$\s]+[/?]")
"""A host that stands in the text itself, up to where the path begins: nothing can be added to it."""


class HttpCallDefinition(Definition):
    url: Annotated[TemplateText, says("where; values in it are written as a URL needs them", label="URL")]
    method: Annotated[
        Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"], says("what is asked of it")
    ] = "GET"
    query: Annotated[dict[str, TemplateJson], says("parameters of the URL; what comes to null is left out")] = (
        msgspec.field(default_factory=dict)
    )
    headers: Annotated[dict[str, TemplateText], says("headers, by name; what comes to null is left out")] = (
        msgspec.field(default_factory=dict)
    )
    body: Annotated[TemplateJson, says("the body; texts may hold expressions")] = msgspec.UNSET
    body_type: Annotated[Literal["json", "form", "text"], says("how the body is written")] = "json"
    credential: Annotated[CredentialName, says("the name of a credential that the request shows")] = ""
    timeout: Annotated[Duration, says("how long the whole call may take")] = "10s"
    retries: Annotated[int, msgspec.Meta(ge=0, le=100), says("how often it is tried again, later")] = 0
    retry_on: Annotated[
        list[str], says("when: classifications (`offline`, `error`, `custom`) and statuses (`429`, `5XX`)")
    ] = msgspec.field(default_factory=lambda: ["offline"])
    backoff: Annotated[Backoff, says("how long it waits before it tries again")] = msgspec.field(
        default_factory=Backoff
    )
    classify: Annotated[
        list[ResponseRule],
        says("what answers mean: each `{type: timeout | status | value | default, …, classification}`; first match"),
    ] = msgspec.field(default_factory=list)
    on_error: Annotated[After, says("how the step ends when the answer is an error")] = "failed"
    on_offline: Annotated[After, says("how the step ends when there is no answer")] = "failed"
    output: Annotated[
        TemplateJson,
        says("the step's output, with `response` in its scope; default: the classification, status and body"),
    ] = msgspec.UNSET
    idempotency_header: Annotated[str, says("the header that carries the step's idempotency key; empty: none")] = (
        "Idempotency-Key"
    )

    def check(self) -> None:
        names = [*self.headers, *([self.idempotency_header] if self.idempotency_header else [])]
        for name in names:
            if HEADER_NAME.fullmatch(name) is None or name.lower() in OURS:
                raise BadDefinition(f"headers: {shown(name)} is not a header that can be set", field="headers")
        for wanted in self.retry_on:
            if wanted not in ("offline", "error", "custom") and not is_pattern(wanted):
                raise BadDefinition(f"retryOn: {shown(wanted)} is no classification and no status", field="retryOn")
        if self.body is not msgspec.UNSET and self.method in ("GET", "HEAD", "OPTIONS"):
            raise BadDefinition(f"a {self.method} has no body", field="body")
        if self.body_type == "form" and self.body is not msgspec.UNSET and not isinstance(self.body, dict):
            raise BadDefinition("the body of a form is an object", field="body")
        if not self.url.startswith(("http://", "https://", "${")):
            raise BadDefinition("url: it must begin with http:// or https://, or with an expression", field="url")
        if parse_template(self.url, "url").is_constant:
            check_url(self.url, "url")
        elif self.credential and _ORIGIN.match(self.url) is None:
            # Else whoever sends the input could have the credential sent to himself.
            raise BadDefinition("url: a call that shows a credential must name its host itself", field="url")


class Request(NamedTuple):
    """A request, ready to be sent."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes | None


@step(
    "http/call",
    default_definition={"method": "GET", "url": "https://api.example.com/orders/${input.id}", "timeout": "10s"},
    examples=[
        Example(
            "Look something up; the body of the answer is the output.",
            {"url": "https://shop.example/items/${input.sku}", "output": "${response.body}"},
            input={"sku": "pen/blue"},
            output={"sku": "pen/blue", "price": "1.20"},
        ),
        Example(
            "Order something, with a credential; whatever says `full` is another way to go on.",
            {
                "method": "POST",
                "url": "https://shop.example/orders",
                "headers": {"X-Customer": "${input.customer}"},
                "body": {"sku": "${input.sku}", "reference": "${tx.id}"},
                "credential": "shop",
                "retries": 3,
                "classify": [
                    {"type": "value", "field": "state", "value": "full", "classification": "custom",
                     "subClassification": "full"},
                    {"type": "status", "value": "2XX", "classification": "ok"},
                ],
            },
            input={"customer": "Ada", "sku": "pen"},
            output={"classification": "custom", "subClassification": "full", "status": 200, "body": {"state": "full"}},
        ),
        Example(
            "An error of the other side, with which the pipeline goes on.",
            {"url": "https://shop.example/items/nothing", "onError": "continue"},
            output={"classification": "error", "subClassification": None, "status": 404, "body": "no such item"},
        ),
    ],
)  # fmt: skip
async def http_call(context: Context, definition: HttpCallDefinition) -> Outcome:
    """Calls an HTTP API, and reads what the answer means: ok, error, offline, or something of its own.

    The first rule of `classify` that matches decides; without one, no answer in time is `offline` (status 599), a
    status below 400 `ok`, anything else an `error`; a host that doesn't exist is an error with status 404. `ok` and
    `custom` go on. Status patterns: `404`; `2XX` and `20X` have as many digits as the status; `2*` is a beginning.

    Only public addresses are called, and those in the setting `outbound_networks`; the address that was checked is the
    one that is called. Redirects are not followed. Between two tries the transaction sleeps, and holds no worker; a
    server's `Retry-After` is obeyed. An answer larger than `output_bytes_max` fails the step.

    The credential is looked up when the call is made, and hidden in what comes back, should the other side repeat it.
    """
    scope = context.scope
    credential = await _credential(context, definition.credential)
    request = make_request(definition, scope, context.idempotency_key, credential)
    answer, headers, trouble = await _call(context, request, duration_ms(definition.timeout, "timeout"), credential)
    found = classify(answer, definition.classify, scope.budget)
    if _is_to_be_tried_again(definition, found.classification, answer.status, context.attempt):
        note = trouble or f"{request.method} answered {answer.status}"
        return RetryLater(_wait_ms(definition, context.attempt, headers), f"{note}; it is tried again")
    return _outcome(definition, scope, found, answer, headers, trouble)


def make_request(
    definition: HttpCallDefinition, scope: Scope, idempotency_key: str, credential: Credential | None
) -> Request:
    """The request as it is sent; raises BadRequest."""
    headers = {"User-Agent": f"datp/{__version__}", "Accept": "application/json, */*;q=0.5"}
    body = None
    if definition.body is not msgspec.UNSET:
        body, headers["Content-Type"] = _written_body(render(definition.body, scope), definition.body_type)
    if definition.idempotency_header and definition.method not in ("GET", "HEAD", "OPTIONS"):
        headers[definition.idempotency_header] = idempotency_key
    for name, template in definition.headers.items():
        value = render(template, scope)
        if value is None:
            continue
        text = as_text(value)
        if not text.isprintable() or len(text) > CHUNK_BYTES:
            raise BadRequest(f"the header {name} can't carry {shown(text)}")
        headers[name] = text
    if credential is not None:
        headers.update(credential.headers())
    return Request(definition.method, _written_url(definition, scope), headers, body)


def _written_url(definition: HttpCallDefinition, scope: Scope) -> str:
    template = parse_template(definition.url, "url")
    is_first = definition.url.startswith("${")

    def write(value: Any, expression: str) -> str:
        nonlocal is_first
        if value is None or value == "":
            raise BadRequest(f"the URL needs {expression}, and there is nothing there")
        written_as_it_is, is_first = is_first, False
        return as_text(value) if written_as_it_is else quote(as_text(value), safe="")

    url = template.written(scope, write=write)
    pairs = [
        (name, as_text(one))
        for name, value in sorted(definition.query.items())
        for one in _listed(render(value, scope))
        if one is not None
    ]
    if pairs:
        url = f"{url}{'&' if '?' in url else '?'}{urlencode(pairs)}"
    check_url(url, "url")
    if any(part in (".", "..") for part in urlsplit(url).path.split("/")):
        raise BadRequest("the path of a URL must not go upwards: it holds . or ..")
    return url


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _written_body(body: Any, how: str) -> tuple[bytes, str]:
    if how == "json":
        return msgspec.json.encode(body), "application/json"
    if how == "text":
        return as_text(body).encode(), "text/plain; charset=utf-8"
    if not isinstance(body, dict):
        raise BadRequest("the body of a form is an object")
    pairs = [(name, as_text(one)) for name, value in body.items() for one in _listed(value) if one is not None]
    return urlencode(pairs).encode(), "application/x-www-form-urlencoded"


async def _credential(context: Context, name: str) -> Credential | None:
    if not name:
        return None
    credential = await context.credential(name)
    if not credential.headers():
        raise BadRequest(f"the credential {name} is of kind {credential.kind}, which no request can show")
    return credential


async def _call(
    context: Context, request: Request, timeout_ms: int, credential: Credential | None
) -> tuple[Answer, dict[str, str], str]:
    """What came back, its headers, and what went wrong, in words. Raises BadRequest."""
    import aiohttp
    from yarl import URL

    most = context.tools.settings.output_bytes_max
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            async with context.tools.session.request(
                request.method,
                URL(request.url, encoded=True),
                data=request.body,
                headers=request.headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None),
            ) as response:
                raw = await _read(response, most)
                return _read_answer(response, raw, credential)
    except TimeoutError:
        return Answer(NO_ANSWER, is_timeout=True), {}, f"there was no answer within {timeout_ms / 1000:g} s"
    except aiohttp.ClientConnectorDNSError:
        return Answer(UNKNOWN_HOST), {}, "there is no such host"
    except (aiohttp.InvalidURL, ValueError) as error:
        raise BadRequest(f"the request can't be sent: {_hidden(str(error), credential)}") from None
    except aiohttp.ClientConnectorCertificateError:
        return Answer(NO_ANSWER, is_timeout=False), {}, "the host's certificate is not valid"
    except (aiohttp.ClientError, OSError) as error:
        refused = refusal(error)
        if refused is not None:
            raise BadRequest(str(refused)) from None
        return Answer(NO_ANSWER, is_timeout=True), {}, _hidden(f"there is no connection: {error}", credential)


async def _read(response: "aiohttp.ClientResponse", most: int) -> bytes:
    parts, size = [], 0
    async for part in response.content.iter_chunked(CHUNK_BYTES):
        parts.append(part)
        size += len(part)
        if size > most:
            raise TooLarge(f"the answer has more than output_bytes_max allows ({most} bytes)")
    return b"".join(parts)


def _read_answer(
    response: "aiohttp.ClientResponse", raw: bytes, credential: Credential | None
) -> tuple[Answer, dict[str, str], str]:
    try:
        text = raw.decode(response.charset or "utf-8", errors="replace")
    except LookupError:
        text = raw.decode(errors="replace")
    text = _hidden(text, credential)
    headers = {name.lower(): _hidden(value, credential) for name, value in response.headers.items()}
    return Answer(response.status, _value_of(text, headers.get("content-type", ""))), headers, ""


def _value_of(text: str, content_type: str) -> Any:
    """JSON as what it says, anything else as text; null for nothing."""
    if not text:
        return None
    if "json" in content_type:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            return printable(text, len(text))
        if is_too_deep(value):
            raise BadRequest("the answer is nested too deep")
        return value
    return printable(text, len(text))


def _hidden(text: str, credential: Credential | None) -> str:
    return credential.hide(text) if credential else text


def _is_to_be_tried_again(
    definition: HttpCallDefinition, classification: Classification, status: int, attempt: int
) -> bool:
    if attempt > definition.retries:
        return False
    return any(
        wanted == classification or (is_pattern(wanted) and matches_status(wanted, status))
        for wanted in definition.retry_on
    )


def _wait_ms(definition: HttpCallDefinition, attempt: int, headers: dict[str, str]) -> int:
    wait_ms = definition.backoff.wait_ms(attempt, random.random())
    asked = headers.get("retry-after", "")
    if asked.isdecimal() and asked.isascii() and len(asked) < 10:
        wait_ms = max(wait_ms, min(int(asked) * 1000, WAIT_MAX_MS))
    return wait_ms


def _outcome(
    definition: HttpCallDefinition,
    scope: Scope,
    found: Classified,
    answer: Answer,
    headers: dict[str, str],
    trouble: str,
) -> Outcome:
    plain = {
        "classification": found.classification,
        "subClassification": found.sub_classification or None,
        "status": answer.status,
        "body": answer.body,
    }
    after: After = "continue"
    if found.classification == "error":
        after = definition.on_error
    elif found.classification == "offline":
        after = definition.on_offline
    note = trouble or f"the answer was {answer.status}"
    if after == "failed":
        return Failed({"error": note, **plain}, note)
    if after == "aborted":
        return Aborted({"error": note, **plain}, note)
    if definition.output is msgspec.UNSET:
        return Success(plain, trouble)
    return Success(render(definition.output, scope.having(response={**plain, "headers": headers})), trouble)
