"""Drawings: a pipeline's steps as boxes, a flow as a waterfall. Pure: numbers for templates."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from datp.model.pipeline import PipelineDefinition

BOX, GAP, ROW, MARGIN = 190, 26, 46, 10


def draw_pipeline(definition: PipelineDefinition) -> dict[str, Any]:
    """Boxes from left to right, in rows; and lines between them."""
    per_row = 4
    boxes: list[dict[str, Any]] = []
    for place, step in enumerate(definition.steps):
        row, column = divmod(place, per_row)
        kind = step.step or ("parallel" if getattr(step, "parallel", None) else "pipeline")
        boxes.append(
            {
                "x": MARGIN + column * (BOX + GAP),
                "y": MARGIN + row * (ROW + GAP),
                "id": step.id,
                "kind": kind,
                "undo": bool(step.undo),
            }
        )
    lines = []
    for before, after in pairwise(boxes):
        if before["y"] == after["y"]:
            lines.append((before["x"] + BOX, before["y"] + ROW // 2, after["x"], after["y"] + ROW // 2))
        else:
            lines.append((before["x"] + BOX // 2, before["y"] + ROW, after["x"] + BOX // 2, after["y"]))
    rows = (len(boxes) - 1) // per_row + 1
    return {
        "boxes": boxes,
        "lines": lines,
        "width": 2 * MARGIN + per_row * (BOX + GAP) - GAP,
        "height": 2 * MARGIN + rows * (ROW + GAP) - GAP,
        "box": BOX,
        "row": ROW,
    }


def waterfall(flow: Sequence[dict[str, Any]], now_ms: int) -> list[dict[str, Any]]:
    """Each entry with where its bar begins and how long it is, of 1000."""
    times = [time for entry in flow for time in (entry["ts1"], entry["ts2"], entry["ts3"]) if time]
    if not times:
        return []
    begins = min(times)
    is_open = any(not entry["ts3"] for entry in flow)
    span = max((now_ms if is_open else max(times)) - begins, 1)
    drawn = []
    for entry in flow:
        queued = entry["ts1"] or begins
        started = entry["ts2"] or (now_ms if not entry["ts3"] else entry["ts3"])
        ended = entry["ts3"] or now_ms
        drawn.append(
            {
                **entry,
                "depth": entry["vogPath"].count(",") if entry["vogPath"] else 0,
                "wait_x": round((queued - begins) * 1000 / span),
                "wait_width": max(0, round((started - queued) * 1000 / span)),
                "run_x": round((started - begins) * 1000 / span),
                "run_width": max(2, round((ended - started) * 1000 / span)),
                "waited_ms": max(0, started - queued),
                "took_ms": max(0, ended - started),
            }
        )
    return drawn
