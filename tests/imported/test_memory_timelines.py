"""What is found in memory timelines."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.analysis.imported.examiner import Answer
from rankscope.analysis.imported.examiners.memory_timelines import MemoryTimelines
from rankscope.artefacts.readers.memory_timeline import MemoryTimeline as Reader
from rankscope.records.imported.memory_timeline import CATEGORIES, MemoryTimeline

MIB = 1 << 20


def timeline(steps: int, rank: int | None = 4, **kept: int) -> MemoryTimeline:
    """A step fills activations and empties them; `kept` bytes of a category stay from each."""
    rows = []
    for step in range(steps):
        for fill in (0, 250, 500, 750, 1000, 500):
            row = dict.fromkeys(CATEGORIES, 0) | {"parameter": 200 * MIB, "activation": fill * MIB}
            for name, held in kept.items():
                row[name.replace("_", " ")] += held * step
            rows.append(list(row.values()))
    held = np.array(rows, np.int64)
    return MemoryTimeline(file="/x/t.raw.json", rank=rank, time_ns=np.arange(len(held)) * 1000, bytes=held)


def examined(*tables: MemoryTimeline) -> Answer:
    examiner = MemoryTimelines()
    return examiner.examine([examiner.digest(table) for table in tables], None)


def test_is_silent_where_every_step_ends_as_it_began():
    answer = examined(timeline(12))

    assert (answer.findings, answer.examined, answer.not_examined) == ((), True, ())
    assert answer.notes == ("t.raw.json: at most 1.17 GiB held: activation 1000.0 MiB, parameter 200.0 MiB",)


def test_few_steps_show_no_growth():
    answer = examined(timeline(3))

    assert (answer.findings, answer.examined, answer.not_examined[0][0]) == ((), False, "growing-cache")


@pytest.mark.parametrize(
    ("kept", "cause", "component"),
    [
        ({"unknown": 30 * MIB}, "growing-cache", "unknown"),
        ({"activation": 40 * MIB}, "growing-cache", "activation"),
        ({"activation": 40 * MIB, "autograd_detail": 5 * MIB}, "retained-graph", "activation"),
    ],
)
def test_names_the_category_that_piles_up(kept, cause, component):
    (finding,) = examined(timeline(12, **kept)).findings

    assert (finding.cause, finding.component, finding.ranks, finding.severity) == (cause, component, (4,), "warning")
    assert finding.evidence[0].value == kept[component]


def test_states_that_appear_once_are_no_growth():
    table = timeline(12)
    table.bytes[6:, CATEGORIES.index("optimizer state")] += 400 * MIB

    assert examined(table).findings == ()


def test_a_real_timeline_is_healthy(data):
    (table,) = Reader().read(data("memory/kineto-memory/memory_timeline.raw.gz"))
    assert isinstance(table, MemoryTimeline)

    assert examined(table).findings == ()
