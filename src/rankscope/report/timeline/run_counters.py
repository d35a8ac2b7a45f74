"""What one rank's counters showed, and the moments when something happened to it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis.facts import Facts, Series
from rankscope.analysis.tables import Rows, column
from rankscope.records.batches import SampleError
from rankscope.records.host import CaughtException, Goodbye, LastCall, ProcessEnd
from rankscope.records.not_finite import NotFinite
from rankscope.records.numerics import BEFORE_OPTIMIZER, GradientStat, LossValue
from rankscope.records.record import Record
from rankscope.records.training import Metric, OptimizerStep
from rankscope.report.timeline.batch import Batch, Draft
from rankscope.report.timeline.parts import Floats, Ints
from rankscope.report.timeline.run_names import shown
from rankscope.report.timeline.window import Window

CLOSEST_NS = 200_000_000
"""Between two readings of CPU time: over less than that the kernel's ticks of 10 ms would show as noise."""

MARKED: tuple[type[Record], ...] = (CaughtException, LastCall, NotFinite, SampleError, Goodbye, ProcessEnd)

Counted = tuple[str, str, Ints, Floats]
"""Name, unit, times, values."""


def rank_counters(facts: Facts, position: int, window: Window) -> Iterator[Counted]:
    """CPU use of the process, its main thread's wait for a CPU, loss, gradient norm, learning rate, own metrics."""
    pid = facts.ranks[position].pid
    found = [
        ("cpu use", "%", *_rates(facts.counter("cpu_ns", pid))),
        ("main thread waits for a CPU", "%", *_rates(facts.counter("main_run_delay_ns", pid))),
        *_by_name(facts, position, LossValue, "loss"),
        ("gradient norm", "", *_gradient_norm(facts, position)),
        *_learning_rates(facts, position),
        *_by_name(facts, position, Metric, ""),
    ]
    yield from (kept for one in found if (kept := _in_window(one, window)) is not None)


def machine_counters(facts: Facts, window: Window) -> Iterator[Counted]:
    """CPUs that are busy, of the machine of the run."""
    time, share = _rates(facts.counter("machine_busy_ns", 0))
    kept = _in_window(("busy CPUs of the machine", "CPUs", time, share / 100), window)
    if kept is not None:
        yield kept


def rank_marks(facts: Facts, position: int, window: Window) -> Batch:
    """Exceptions, values that are not finite, samples that could not be read, the end of the process."""
    batch = Batch()
    pid = facts.ranks[position].pid
    workers = facts.ranks[position].workers
    named: tuple[tuple[type[Record], str, str, tuple[int, ...]], ...] = (
        (CaughtException, "caught", "site", (pid,)), (LastCall, "calls", "site", (pid,)),
        (NotFinite, "not finite:", "site", (pid,)), (SampleError, "sample error:", "site", (pid, *workers)),
    )  # fmt: skip
    for kind, verb, site, pids in named:
        for one in pids:
            batch.add(_named(batch, facts, _of(facts, kind, one, window), kind=kind, verb=verb, site=site))
    ended = _of(facts, Goodbye, pid, window)
    ended = ended[column(ended, Goodbye, "exception") > 0]
    batch.add(_named(batch, facts, ended, kind=Goodbye, verb="ends with", site="place", own="exception"))
    rows = facts.tables.of(ProcessEnd)
    rows = rows[(column(rows, ProcessEnd, "of") == pid) & (rows["time_ns"] <= window.end_ns)]
    rows = rows[rows["time_ns"] >= window.begin_ns]
    time = rows["time_ns"].astype(np.int64)
    batch.add(Draft(time, time, batch.same("process ended", len(rows)), batch.same("end", len(rows))))
    return batch


def _named(
    batch: Batch, facts: Facts, rows: Rows, *, kind: type[Record], verb: str, site: str, own: str = "name"
) -> Draft:
    pid = int(rows["process"][0]) if len(rows) else 0
    time = rows["time_ns"].astype(np.int64)
    name = batch.texts(column(rows, kind, own), lambda id: f"{verb} {facts.tables.name(pid, id) or '?'}")
    place = batch.texts(column(rows, kind, site), lambda id: facts.tables.name(pid, id))
    return Draft(
        time, time, name, batch.same(kind.kind, len(rows)), {"step": rows["step"].astype(np.int64)}, {"place": place}
    )


def _of(facts: Facts, kind: type[Record], pid: int, window: Window) -> Rows:
    rows = facts.tables.of(kind)
    rows = rows[rows["process"] == pid]
    return np.asarray(rows[(rows["time_ns"] >= window.begin_ns) & (rows["time_ns"] <= window.end_ns)])


def _rates(series: Series) -> tuple[Ints, Floats]:
    """Percent of one CPU from each reading to the next one, of those that are CLOSEST_NS apart."""
    kept: list[int] = []
    last = -CLOSEST_NS
    for at, time in enumerate(series.time_ns.tolist()):
        if time - last >= CLOSEST_NS:
            kept.append(at)
            last = time
    time, value = series.time_ns[kept], series.value[kept]
    if len(time) < 2:
        return np.empty(0, np.int64), np.empty(0, np.float64)
    rate = 100.0 * np.diff(value) / np.diff(time)
    return time, np.append(rate, rate[-1])


def _by_name(facts: Facts, position: int, kind: type[LossValue] | type[Metric], called: str) -> Iterator[Counted]:
    rows = facts.rows(kind, position, window=False)
    pid = facts.ranks[position].pid
    names = np.unique(rows["name"]).tolist()
    for name in names:
        mine = rows[rows["name"] == name]
        text = shown(facts.tables.name(pid, name))
        title = text if not called else called if len(names) == 1 else f"{called}: {text}"
        yield title, "", mine["time_ns"].astype(np.int64), column(mine, kind, "value").astype(np.float64)


def _gradient_norm(facts: Facts, position: int) -> tuple[Ints, Floats]:
    """Over all parameters that were looked at before an optimizer stepped; NaN where one of them has none."""
    rows = facts.rows(GradientStat, position, window=False)
    rows = rows[column(rows, GradientStat, "moment") == BEFORE_OPTIMIZER]
    if not len(rows):
        return np.empty(0, np.int64), np.empty(0, np.float64)
    _, first, inverse = np.unique(rows["step"], return_index=True, return_inverse=True)
    squares = np.bincount(inverse, column(rows, GradientStat, "norm") ** 2)
    return rows["time_ns"][first].astype(np.int64), np.sqrt(squares)


def _learning_rates(facts: Facts, position: int) -> Iterator[Counted]:
    rows = facts.rows(OptimizerStep, position, window=False)
    optimizers = column(rows, OptimizerStep, "optimizer")
    numbers = np.unique(optimizers).tolist()
    for number in numbers:
        mine = rows[optimizers == number]
        rate = column(mine, OptimizerStep, "lr").astype(np.float64)
        time = mine["time_ns"].astype(np.int64)
        if len(rate):
            change = np.append(True, rate[1:] != rate[:-1])  # a constant one is one reading
            time, rate = time[change], rate[change]
        yield "learning rate" if len(numbers) == 1 else f"learning rate of optimizer {number}", "", time, rate


def _in_window(one: Counted, window: Window) -> Counted | None:
    """Its finite values in the window, with the last one before it, which holds at its begin; None without any."""
    name, unit, time, value = one
    with np.errstate(invalid="ignore"):
        good = np.isfinite(value) & (time <= window.end_ns)
    time, value = time[good], value[good]
    before = int((time < window.begin_ns).sum())
    time, value = time[max(0, before - 1) :], value[max(0, before - 1) :]
    return (name, unit, np.maximum(time, window.begin_ns), value) if len(time) else None
