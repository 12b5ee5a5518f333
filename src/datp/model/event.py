"""An event: why a transaction is in a queue, and where in its flow the work goes on."""

from typing import Literal

import msgspec

from datp.errors import BrokenState
from datp.model.values import printable

EventKind = Literal["start", "continue", "return", "joined", "undo", "verdict"]


class Event(msgspec.Struct, frozen=True):
    """What is to be done next; it is stored with the transaction, the queues hold only ids.

    start     run the pipeline of this flow entry from its first step
    continue  run this step (again): it slept, waited, was retried, or its group is another
    return    the child pipeline that this step called has ended
    joined    the branches that this step started have ended
    undo      undo the step that this entry names
    verdict   a deadline passed or a cancel came; the flow is brought to its end
    """

    kind: EventKind
    at: int = 0


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)

START = '{"kind":"start","at":0}'
VERDICT = '{"kind":"verdict","at":0}'
"""Written by scripts too; a test compares."""


def encode_event(event: Event) -> str:
    return _encoder.encode(event).decode()


def decode_event(stored: bytes | str) -> Event:
    """The stored event; raises BrokenState for anything else."""
    try:
        return _decoder.decode(stored)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BrokenState(f"The stored event cannot be read: {printable(error)}") from None
