"""How much is being done: what is too much is sent away before it costs anything."""

from datp.errors import TooBusy
from datp.settings import Settings


class Load:
    """How much is being done at this moment."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.in_hand = 0
        """Requests that have come and are not answered."""
        self.waiting = 0
        """Those among them that only wait for something to happen."""

    def check(self) -> None:
        """There is room for one more. Raises TooBusy."""
        if self.in_hand - self.waiting > self.settings.http_requests_max:
            raise TooBusy(
                f"This process has http_requests_max ({self.settings.http_requests_max}) requests in hand; try again",
                retry_after_s=1,
            )
