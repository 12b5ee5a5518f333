"""Every figure of docs/explanation/performance.md, measured here and now: `make bench`."""

import argparse
import json
import platform
import statistics
from importlib.metadata import version
from pathlib import Path

import uvloop

from bench import latency
from bench.drain import measure
from datp.embedded import find_engine

ROWS = (
    ("three no-op steps, 1 KiB passed on", "noop"),
    ("three steps that read 1 KiB and return it", "echo"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", type=Path, help="a file for the figures, JSON")
    wanted = parser.parse_args()
    engine = find_engine()
    figures: dict[str, object] = {
        "machine": f"{platform.machine()}, {platform.platform()}",
        "python": platform.python_version(),
        "store": f"{engine.name} {'.'.join(map(str, engine.version))}",
        "redis-py": version("redis"),
    }
    for says, name in ROWS:
        rows = [uvloop.run(measure(wanted.total, name, workers=200, partitions=1)) for _ in range(wanted.repeats)]
        medians = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        shares = {
            "drain / raw": statistics.median(row["drain"] / row["raw drain"] for row in rows),
            "enqueue / raw": statistics.median(row["enqueue"] / row["raw enqueue"] for row in rows),
        }
        figures[says] = {**medians, **shares}
        print(says)
        for key, value in medians.items():
            print(f"  {key:18} {value:10,.0f}{'' if key.endswith('µs') else '/s'}")
        for key, value in shares.items():
            print(f"  {key:18} {value:10.0%}")
    figures["one at a time"] = latency.main()
    if wanted.write:
        wanted.write.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
