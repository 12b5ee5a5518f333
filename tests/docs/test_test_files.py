"""What would keep `make test` from beginning, though every file passes by itself."""

from collections import Counter
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]


def test_no_two_test_files_have_one_name() -> None:
    """They are imported by their names alone: the second of two can't be collected beside the first."""
    names = Counter(path.name for path in TESTS.rglob("test_*.py"))
    twice = sorted(name for name, times in names.items() if times > 1)
    assert not twice, f"rename one of each: {', '.join(twice)}"
