"""Server-sent events: read from a stream of bytes, as the HTML standard says."""

from collections.abc import AsyncIterator

import aiohttp


async def read_events(content: aiohttp.StreamReader) -> AsyncIterator[tuple[str, bytes]]:
    """The type and the data of each event; comments, which only say that somebody is there, are left out."""
    kind = "message"
    data: list[bytes] = []
    async for raw in content:
        line = raw.rstrip(b"\r\n")
        if not line:
            if data:
                yield kind, b"\n".join(data)
            kind, data = "message", []
            continue
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            kind = value.decode(errors="replace")
        elif name == b"data":
            data.append(value)
