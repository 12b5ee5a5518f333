"""How much is being done: what is too much is sent away before it costs anything."""

from datp.errors import TooBusy
from datp.longpoll.waiting import Waiting
from datp.settings import Settings


class Load:
    """How much is being done at this moment."""

    def __init__(self, settings: Settings, waiting: Waiting | None = None) -> None:
        self.settings = settings
        self.in_hand = 0
        """Requests that have come and are not answered."""
        self._waiting = waiting

    def check(self) -> None:
        """There is room for one more. Raises TooBusy."""
        waiting = self._waiting.count if self._waiting is not None else 0
        if self.in_hand - waiting > self.settings.http_requests_max:
            raise TooBusy(
                f"This process has http_requests_max ({self.settings.http_requests_max}) requests in hand; try again",
                retry_after_s=1,
            )
