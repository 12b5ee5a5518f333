"""The tests in docs/testing.md pass as they stand there."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_about_testing_is_true(tmp_path: Path) -> None:
    [code] = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/testing.md").read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "test_shop.py").write_text(code)
    # The plugin is found by entry point where DATP is installed anew; here it may not be yet.
    (tmp_path / "conftest.py").write_text("from datp.testing.plugin import datp, datp_server\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--durations=3"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{code.count('def test_')} passed" in done.stdout
