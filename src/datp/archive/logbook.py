"""The logbook: what steps wrote about a transaction, and the buffer in which a process keeps it for a moment."""

from collections import deque
from typing import Final

import msgspec

from datp.model.log_level import LogLevel

__all__ = ["LogEntry", "LogLevel", "Logbook", "decode_entry", "encode_entry", "entry_of", "row_of", "storable"]

CUT: Final = " … (cut)"


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was said."""

    tx_id: str
    step_id: str
    at_ms: int
    level: LogLevel
    source: str
    """Who said it: the step's type, or a logger's name."""
    text: str
    id: int = 0
    """Its place in the logbook; 0 before it was written."""


class Logbook:
    """What the steps of this process said and nobody has written yet.

    Steps say it in the event loop and in threads. It has room for so many entries; what comes when it is full is
    dropped, and counted.
    """

    def __init__(self, room: int, text_max: int) -> None:
        self.dropped = 0
        self._room = room
        self._text_max = text_max
        self._entries: deque[LogEntry] = deque()

    def say(self, entry: LogEntry) -> None:
        """The entry is kept, if there is room."""
        if len(self._entries) >= self._room:
            self.dropped += 1
            return
        if len(entry.text) > self._text_max:
            entry = msgspec.structs.replace(entry, text=entry.text[: self._text_max] + CUT)
        self._entries.append(entry)

    def take(self, count: int) -> list[LogEntry]:
        """The next entries, which are then the caller's."""
        return [self._entries.popleft() for _ in range(min(count, len(self._entries)))]

    def __len__(self) -> int:
        return len(self._entries)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(LogEntry)


def encode_entry(entry: LogEntry) -> str:
    """As it stands in the store, on its way to SQL."""
    return _encoder.encode(msgspec.structs.replace(entry, text=storable(entry.text))).decode()


def decode_entry(stored: bytes) -> LogEntry | None:
    """The entry; None for what is none."""
    try:
        return _decoder.decode(stored)
    except msgspec.DecodeError:
        return None


def entry_of(row: tuple[object, ...]) -> LogEntry:
    """The entry of a row."""
    names = ("id", "tx_id", "step_id", "at_ms", "level", "source", "text")
    return msgspec.convert(dict(zip(names, row, strict=True)), LogEntry)


def row_of(entry: LogEntry) -> tuple[object, ...]:
    """The columns of an entry, in the order in which insert_log names them."""
    return (
        entry.tx_id,
        entry.step_id,
        entry.at_ms,
        int(entry.level),
        storable(entry.source),
        storable(entry.text),
    )


def storable(text: str) -> str:
    """The text, with what a database doesn't take replaced: NUL, and halves of characters."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
