"""Finds samples that the dataset could not give out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import Detector
from rankscope.analysis.ends import ends
from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import Place, parse_place
from rankscope.analysis.tables import column
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.batches import SampleError
from rankscope.records.host import CaughtException
from rankscope.records.loading import Fetch
from rankscope.records.training import Step

MOST = 6
"""Errors that are told one by one."""


@dataclass(frozen=True, slots=True)
class _Error:
    """One sample that could not be read."""

    position: int
    worker: int | None
    index: int | None
    exact: bool
    text: str
    place: Place | None
    dataset: str
    time_ns: int
    caught_inside: bool
    """The dataset itself caught and logged it; else it came out of it."""

    @property
    def sample(self) -> str:
        """`sample 123`, `a sample of the batch that begins with 96`."""
        if self.index is None:
            return "a sample"
        return f"sample {self.index}" if self.exact else f"a sample of the batch that begins with {self.index}"

    @property
    def where(self) -> str:
        return f" in loader worker {self.worker}" if self.worker is not None else ""


class UnreadableSample(Detector):
    """A sample is broken and cannot be read.

    ## What it is
    The dataset raises for one sample: a truncated file, a missing one, a record that does not parse. The run ends with
    it, or the program catches the error and goes on without the batch, or with another sample in its place.

    ## What shows it
    An exception that comes out of the dataset, with the index of the sample at which the fetch was; or one that the
    dataset caught and logged while it made a batch.

    ## What else looks like it
    An error in the dataset's code, which comes with the very first sample. Samples of unequal size, of which no batch
    can be made.

    ## What to do
    Repair or leave out that sample; check all files once before a long run. Count what is left out: a sample that
    stands in for another is seen twice.
    """

    name = "unreadable-sample"
    needs = (Fetch,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        found = sorted((e for p in range(facts.size) for e in _errors(facts, p)), key=lambda e: e.time_ns)
        if not found:
            return
        fatal = [e for e in found if _ends_the_run(facts, e)]
        first = fatal[0] if fatal else found[0]
        positions = tuple(sorted({e.position for e in found if not fatal or e is first}))
        step = facts.step_count(first.position) if fatal else _step(facts, first)
        instead = "with another in its place" if first.caught_inside else "without its batch"
        goes_on = "" if fatal else f"; the run goes on {instead}"
        who = wording.ranks(facts, (first.position,)) if facts.size > 1 else "the run"
        yield Finding(
            cause=self.name,
            severity="critical" if fatal else "warning",
            confidence=0.95 if first.exact else 0.8,
            title=f"{who} cannot read {first.sample} of {first.dataset}{first.where}: {first.text[:160]}{goes_on}",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="data",
            component=f"{first.dataset}: {first.sample}",
            location=wording.location(first.place),
            first_step=step,
            last_step=max(step, _step(facts, found[-1])),
            cost=Cost(None, None, None),
            evidence=(
                *(
                    Evidence(
                        f"{e.text[:120]}{e.where}; index of {'the sample' if e.exact else 'the first of the batch'}",
                        float(e.index) if e.index is not None else None, "", facts.numbers((e.position,)),
                    )
                    for e in [first, *(e for e in found if e is not first)][:MOST]
                ),
                Evidence("samples that could not be read", float(len(found)), "count"),
            ),
            next=(
                "repair or leave out that sample; read all of them once before a long run",
                "a sample that is skipped must not be replaced by its neighbour, which is seen twice then",
            ),
        )  # fmt: skip


def _errors(facts: Facts, position: int) -> Iterator[_Error]:
    rank = facts.ranks[position]
    for pid in (rank.pid, *rank.workers):
        process = facts.tables.processes[pid]
        worker = process.worker if pid != rank.pid and process.worker >= 0 else None
        yield from _came_out(facts, position, pid, worker)
        yield from _caught_inside(facts, position, pid, worker)


def _came_out(facts: Facts, position: int, pid: int, worker: int | None) -> Iterator[_Error]:
    rows = facts.tables.of(SampleError)
    for row in rows[rows["process"] == pid]:
        one = np.array([row])
        index, exact, fetches, read, site, dataset = (
            int(column(one, SampleError, name)[0])
            for name in ("index", "exact", "fetches", "position", "site", "dataset")
        )
        text = facts.tables.name(pid, int(row["name"]))
        if not (read or fetches or _others_read(facts, position, int(row["time_ns"]))):
            continue  # nothing was ever read: an error of the code
        yield _Error(
            position, worker, index if index >= 0 else None, bool(exact), text, _place(facts, pid, site),
            facts.tables.name(pid, dataset), int(row["time_ns"]), False,
        )  # fmt: skip


def _caught_inside(facts: Facts, position: int, pid: int, worker: int | None) -> Iterator[_Error]:
    """Exceptions that were formatted while a batch was made, and did not come out of it."""
    fetches = facts.tables.of(Fetch)
    fetches = fetches[fetches["process"] == pid]
    caught = facts.tables.of(CaughtException)
    caught = caught[caught["process"] == pid]
    if not len(fetches) or not len(caught):
        return
    raised = facts.tables.of(SampleError)
    raised = raised[raised["process"] == pid]
    begins = fetches["time_ns"].astype(np.int64)
    ends_ns = begins + fetches["duration_ns"].astype(np.int64)
    at = np.searchsorted(begins, caught["time_ns"].astype(np.int64), side="right") - 1
    for row, i in zip(caught, at.tolist(), strict=True):
        inside = i >= 0 and row["time_ns"] <= ends_ns[i]
        came_out = bool(((raised["time_ns"] >= begins[i]) & (raised["time_ns"] <= ends_ns[i])).any())
        if not inside or came_out:
            continue
        one = fetches[i : i + 1]
        index = int(column(one, Fetch, "first_index")[0])
        yield _Error(
            position, worker, index, False, facts.tables.name(pid, int(row["name"])),
            _place(facts, pid, int(column(np.array([row]), CaughtException, "site")[0])),
            facts.tables.name(pid, int(one["name"][0])), int(row["time_ns"]), True,
        )  # fmt: skip


def _others_read(facts: Facts, position: int, before_ns: int) -> bool:
    """Whether any process of a rank had made a batch before."""
    rank = facts.ranks[position]
    rows = facts.tables.of(Fetch)
    mine = rows[np.isin(rows["process"], (rank.pid, *rank.workers))]
    return bool((mine["time_ns"] + mine["duration_ns"] < before_ns).any())


def _ends_the_run(facts: Facts, error: _Error) -> bool:
    """Whether the rank ended with that exception (a worker's is raised again, with its own text inside)."""
    message = error.text.partition(": ")[2][:100]
    for end in ends(facts):
        if end.position == error.position and end.exception and not error.caught_inside:
            same_kind = end.exception.partition(":")[0] == error.text.partition(":")[0]
            return same_kind or bool(message and re.search(re.escape(message), end.exception))
    return False


def _step(facts: Facts, error: _Error) -> int:
    """Steps that the rank had finished by then; a worker is ahead by what it prepares."""
    rows = facts.tables.of(Step)
    mine = rows[rows["process"] == facts.ranks[error.position].pid]
    return int((mine["time_ns"] + mine["duration_ns"] <= error.time_ns).sum())


def _place(facts: Facts, pid: int, name_id: int) -> Place | None:
    text = facts.tables.name(pid, name_id)
    return parse_place(text) if text.count(":") > 1 else None
