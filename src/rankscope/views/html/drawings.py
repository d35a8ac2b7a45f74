"""The data that the page's script draws, as compact JSON that is safe inside a script element."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from rankscope.report.details import Details, Heat, StepTimeline, StepTimes
from rankscope.views.html.budget import Phase


def drawings_json(details: Details, phases: Sequence[Phase]) -> str:
    """Timelines, heat map and step times. No character of it can end the element or start a new one."""
    number = {phase.name: at for at, phase in enumerate(phases)}
    document = {
        "phases": [[phase.name, phase.color] for phase in phases],
        "timelines": [_timeline(step, number) for step in details.steps],
        "heat": _heat(details.heat),
        "times": _times(details.step_ms),
        "markers": [[marker.step, marker.text] for marker in details.markers],
    }
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _timeline(step: StepTimeline, number: dict[str, int]) -> dict[str, object]:
    spans = sorted(step.spans, key=lambda span: (span.rank, span.start_us, -span.duration_us))
    names: dict[str, int] = {}
    rows = [
        [
            span.rank,
            round(span.start_us, 3),
            round(span.duration_us, 3),
            number[span.phase],
            names.setdefault(span.name, len(names)),
            ("work", "wait", "communication").index(span.kind),
            int(span.critical),
        ]
        for span in spans
    ]
    return {"step": step.step, "label": step.label, "names": list(names), "spans": rows}


def _heat(heat: Heat | None) -> dict[str, object] | None:
    if heat is None or not heat.steps or not heat.ranks:
        return None
    return {"ranks": heat.ranks, "steps": heat.steps, "values": [_row(row) for row in heat.values], "what": heat.what}


def _times(times: StepTimes | None) -> dict[str, object] | None:
    if times is None or not times.steps or not times.ms:
        return None
    return {"steps": times.steps, "ranks": list(times.ms), "ms": [_row(row) for row in times.ms.values()]}


def _row(values: Sequence[float | None]) -> list[float | None]:
    """Missing and unmeasurable values stay missing; four digits are more than a screen shows."""
    return [None if value is None or not math.isfinite(value) else float(f"{value:.4g}") for value in values]
