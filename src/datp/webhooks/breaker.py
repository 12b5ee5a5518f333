"""The breaker: URLs that keep failing are left alone for a while, by every sender.

What is held against a URL stands in the store; a sender knows it from its own reports at once, and from others' within
webhook_interval_ms. While anything is held against a URL, one request at a time tells whether that is still so.
"""

import logging
from collections import Counter
from typing import Final

from datp.archive.events import OperatorEvents
from datp.hotstore.store import Reply, Result, Store, Turn, UrlTrouble
from datp.model.operator_event import EventCode
from datp.webhooks.delivery import Outcome, Verdict

log = logging.getLogger(__name__)

RESULTS: Final = {Verdict.DELIVERED: "fine", Verdict.FAILED: "failed", Verdict.GONE: "gone"}


BUSY_MAX_MS: Final = 3_600_000
"""How long everything owed to a URL waits because its receiver asked for it; what failed may wait longer."""


class Trouble:
    """What this sender knows of a URL that fails."""

    __slots__ = ("comment", "is_gone", "paused_until_ms")

    def __init__(self, paused_until_ms: int = 0, is_gone: bool = False, comment: str = "") -> None:
        self.paused_until_ms = paused_until_ms
        self.is_gone = is_gone
        self.comment = comment


class Breaker:
    """What is known of URLs in trouble, and what is to be reported of them."""

    def __init__(self, store: Store, events: OperatorEvents) -> None:
        self.troubles: dict[str, Trouble] = {}
        self.calling: Counter[str] = Counter()
        """URL → requests under way."""
        self._busy: dict[str, int] = {}
        """URL → until when its receiver asked not to be called."""
        self._store = store
        self._events = events
        self._reports: list[tuple[str, str, str]] = []

    def heard(self, url: str, outcome: Outcome) -> None:
        """A request to this URL came to this."""
        known = self.troubles.get(url)
        if outcome.verdict is Verdict.DELIVERED:
            self._busy.pop(url, None)
            if known is not None:
                del self.troubles[url]
                self._reports.append((url, RESULTS[outcome.verdict], ""))
            return
        if known is None:
            known = self.troubles[url] = Trouble()
        known.comment = outcome.comment
        if outcome.retry_after_ms:
            self._busy[url] = self._store.clock.now_ms() + min(outcome.retry_after_ms, BUSY_MAX_MS)
        known.is_gone = known.is_gone or outcome.verdict is Verdict.GONE
        self._reports.append((url, RESULTS[outcome.verdict], outcome.comment))

    def pause_ms(self, url: str, now_ms: int) -> int:
        """How long the URL is to be left alone: it is paused, or its receiver asked for that. 0: not at all."""
        known = self.troubles.get(url)
        busy_until_ms = self._busy.get(url, 0)
        if busy_until_ms and busy_until_ms <= now_ms:
            del self._busy[url]
        return max(0, busy_until_ms - now_ms, known.paused_until_ms - now_ms if known is not None else 0)

    @property
    def has_reports(self) -> bool:
        return bool(self._reports)

    def report(self, turn: Turn) -> "Reported":
        """What is to be reported travels with this turn."""
        reports, self._reports = self._reports, []
        return Reported(reports, turn.report_urls(reports) if reports else None)

    async def reported(self, sent: "Reported") -> None:
        """What came of it is known here, and told to operators. What did not arrive is reported again."""
        if sent.reply is None:
            return
        if sent.reply.error is not None:
            self._reports = sent.reports + self._reports
            return
        for (url, _, comment), result in zip(sent.reports, sent.reply.value, strict=True):
            await self._told(url, result, comment)

    def look_again(self, turn: Turn) -> list[Reply[list[UrlTrouble]]]:
        """Everything that is held against URLs is asked for with this turn."""
        return [turn.list_urls(partition) for partition in range(self._store.partitions)]

    def looked(self, replies: list[Reply[list[UrlTrouble]]]) -> None:
        """This is what is held against URLs, whoever reported it; and what this sender has still to report."""
        if any(reply.error is not None for reply in replies):
            return
        found = {
            one.url: Trouble(one.paused_until_ms, one.is_gone, one.comment) for reply in replies for one in reply.value
        }
        for url, result, comment in self._reports:
            if result == "fine":
                found.pop(url, None)
            else:
                found.setdefault(url, Trouble(0, result == "gone", comment))
        self.troubles = found

    async def _told(self, url: str, result: Result, comment: str) -> None:
        if result.code == "PAUSED":
            until_ms = int(result.text)
            self.troubles[url] = Trouble(until_ms, False, comment)
            pause_s = (until_ms - self._store.clock.now_ms()) / 1000
            await self._events.raise_event(
                EventCode.WEBHOOK_PAUSED,
                url,
                f"Deliveries to {url} keep failing, lastly: {comment}. None are sent there for {pause_s:.0f} s",
            )
        elif result.code == "STOPPED":
            await self._events.raise_event(
                EventCode.WEBHOOK_PAUSED,
                url,
                f"{url} answered 410 Gone: nothing more is sent there. datp webhooks resume URL takes that back",
            )
        elif result.code == "CLOSED":
            await self._events.raise_event(
                EventCode.WEBHOOK_RESUMED, url, f"{url} answers again: deliveries are sent there again"
            )


class Reported:
    """Reports on their way."""

    def __init__(self, reports: list[tuple[str, str, str]], reply: Reply[list[Result]] | None) -> None:
        self.reports = reports
        self.reply = reply
