"""User code between the phases: what it does, and which phase it serves after all.

A record tells where a batch, a checkpoint or a collective began and ended, not the user's function around it. The
stack samples show that function; the time spent in it belongs to the phase that it serves: a `save_checkpoint` that
also flushes to disk is a checkpoint, a `validate` that also computes a metric is evaluation.
"""

from __future__ import annotations

import re
from collections import Counter as Counted
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis import timeline
from rankscope.analysis.dataflow import feeds_forward, writes_lines
from rankscope.analysis.ranks import Rank
from rankscope.analysis.stacks import Code, Place, Samples, Stack, activity, parse_place, spine
from rankscope.analysis.tables import Tables, column
from rankscope.analysis.timeline import Timeline
from rankscope.records.collective import Collective
from rankscope.records.loading import BatchWait, LoaderStart
from rankscope.records.training import Backward, OptimizerStep, Span

LOGGING_LIBRARIES = (
    "/logging/",
    "/tensorboard/",
    "/wandb/",
    "/mlflow/",
    "/comet_ml/",
    "/neptune/",
    "/aim/",
    "/clearml/",
)
"""Parts of the paths of libraries that log: whatever calls them logs."""
SAVING_LIBRARIES = ("torch/serialization.py", "torch/distributed/checkpoint/", "safetensors/")
"""The same of libraries that write checkpoints."""
WORDS = {
    timeline.CHECKPOINT: re.compile(
        r"checkpoint|ckpt|^_?(save|write|dump|store|persist)(_(model|state|weights|all|training_state|snapshot))?$",
        re.I,
    ),
    timeline.EVALUATION: re.compile(
        r"^_?(run_|do_)?(eval(uate|uation)?|valid(ate|ation)?|test|infer(ence)?)"
        r"(_(epoch|model|loop|set|split|one_epoch|all|metrics?|accuracy|step))?$",
        re.I,
    ),
    timeline.LOGGING: re.compile(
        r"(^|_)(log|logs|logger|logging|track|tracker|summary|hist|histogram|report|dump_metrics|write_metrics)(_|$|s)",
        re.I,
    ),
    timeline.DATA: re.compile(
        r"(^|_)(load|fetch|read|next|get|make|sample|draw|prepare|collate|augment|tokeni[sz]e|decode)_?\w*"
        r"(batch|data|sample|example|item|input|tokens)|(^|_)(collate|augment|tokeni[sz]e)|^__getitem__$|^__next__$",
        re.I,
    ),
}
"""What a function's name says of the phase that it serves; only asked where the records say nothing."""

AGREED = 0.6
"""Share of the sampled time between the same two phases that must serve one phase, before segments there that no sample
met are taken for it too."""
SHORTEST_GAP_NS = 100_000
"""Shorter segments between phases are the loop's own overhead."""
AS_LONG = 0.5
"""A segment that no sample met serves a phase if it is at least so long as its sampled likes usually are."""


@dataclass(slots=True)
class Activities:
    """For each rank the samples with their segment and the place in user code they were taken in."""

    loop: set[Code]
    """Functions of the training loop."""
    segment: list[NDArray[np.int64]] = field(default_factory=list)
    """Rank position -> for each sample the index of its segment (-1: outside)."""
    place: list[list[Place | None]] = field(default_factory=list)
    """Rank position -> for each sample what the loop was doing."""
    datasets: set[str] = field(default_factory=set)
    """Classes of the datasets that loaders were made for."""
    forward_lines: dict[str, frozenset[int]] = field(default_factory=dict)
    """File -> lines of the training loop on which a forward or backward pass was seen."""
    serves: dict[Code, str] = field(default_factory=dict)
    """Function -> the phase that it serves."""
    labels: list[dict[int, str]] = field(default_factory=list)
    """Rank position -> segment -> its new phase."""

    def relabel(self, timelines: Sequence[Timeline]) -> None:
        """Give each segment of user code the phase that it serves."""
        for own, labels in zip(timelines, self.labels, strict=True):
            for index, phase in labels.items():
                own.segments["phase"][index] = own.phase_id(phase)


def find_activities(
    tables: Tables, ranks: Sequence[Rank], timelines: Sequence[Timeline], samples: Sequence[Samples]
) -> Activities:
    """Assign samples to segments, find what serves which phase, and label the segments of user code."""
    segments = [_segments_of(own, mine) for own, mine in zip(timelines, samples, strict=True)]
    loop = _training_loop(tables, ranks, timelines, samples, segments)
    found = Activities(loop, segments)
    for mine in samples:
        known: dict[int, Place | None] = {}
        found.place.append([known.setdefault(id(s), activity(s, loop)) for s in mine.stack])
    sites = _call_sites(tables, ranks, timelines)
    for rank, own in zip(ranks, timelines, strict=True):
        found.datasets |= {tables.name(rank.pid, n) for n in np.unique(own.rows[LoaderStart.code]["name"]).tolist()}
    found.forward_lines = _forward_lines(tables, ranks, timelines, samples, found)
    for position, own in enumerate(timelines):
        _functions_of_evaluation(found, own, position)
    for own, mine, position in zip(timelines, samples, range(len(ranks)), strict=True):
        found.labels.append(_label(found, own, mine, position, sites))
    return found


def _segments_of(own: Timeline, mine: Samples) -> NDArray[np.int64]:
    """For each sample the index of the segment that it was taken in; -1: outside of all."""
    if not len(own.segments) or not len(mine):
        return np.full(len(mine), -1, np.int64)
    index = np.searchsorted(own.segments["start"].astype(np.int64), mine.time_ns, side="right") - 1
    inside = (index >= 0) & (mine.time_ns < own.segments["end"].astype(np.int64)[np.maximum(index, 0)])
    return np.where(inside, index, -1).astype(np.int64)


def _training_loop(
    tables: Tables,
    ranks: Sequence[Rank],
    timelines: Sequence[Timeline],
    samples: Sequence[Samples],
    segments: Sequence[NDArray[np.int64]],
) -> set[Code]:
    """Functions that call backward, or are on the stack while backward or the optimizer runs."""
    stacks = []
    loop: set[Code] = set()
    kinds = (Backward.code, OptimizerStep.code)
    for rank, own, mine, index in zip(ranks, timelines, samples, segments, strict=True):
        wanted = {own.phase_id(timeline.BACKWARD), own.phase_id(timeline.OPTIMIZER)}
        for stack, at in zip(mine.stack, index.tolist(), strict=True):
            if at >= 0 and int(own.segments["phase"][at]) in wanted and int(own.segments["kind"][at]) in kinds:
                stacks.append(stack)
        for site in np.unique(own.rows[Backward.code]["name"]).tolist():
            loop.add(parse_place(tables.name(rank.pid, int(site))).code)
    return loop | spine(stacks)


def _call_sites(tables: Tables, ranks: Sequence[Rank], timelines: Sequence[Timeline]) -> dict[str, set[Code]]:
    """Functions from which checkpoints were written and collectives called."""
    sites: dict[str, set[Code]] = {timeline.CHECKPOINT: set(), timeline.COMMUNICATION: set()}
    for rank, own in zip(ranks, timelines, strict=True):
        spans = own.rows[Span.code]
        for name, site in zip(spans["name"].tolist(), column(spans, Span, "site").tolist(), strict=True):
            if tables.name(rank.pid, name) == timeline.CHECKPOINT:
                sites[timeline.CHECKPOINT].add(parse_place(tables.name(rank.pid, site)).code)
        calls = own.rows[Collective.code]
        outside = column(calls, Collective, "in_backward") == 0
        for site in np.unique(column(calls, Collective, "site")[outside]).tolist():
            sites[timeline.COMMUNICATION].add(parse_place(tables.name(rank.pid, site)).code)
    return sites


def _forward_lines(
    tables: Tables, ranks: Sequence[Rank], timelines: Sequence[Timeline], samples: Sequence[Samples], found: Activities
) -> dict[str, frozenset[int]]:
    """File -> lines of the training loop from which samples found a forward running, or backward was called."""
    lines: dict[str, set[int]] = {}
    for rank, own, mine, segment in zip(ranks, timelines, samples, found.segment, strict=True):
        forward = own.phase_id(timeline.FORWARD)
        for at, stack in zip(segment.tolist(), mine.stack, strict=True):
            caller = _caller_line(stack, found.loop) if at >= 0 and own.segments["phase"][at] == forward else None
            if caller is not None:
                lines.setdefault(caller.file, set()).add(caller.line)
        for site in np.unique(own.rows[Backward.code]["name"]).tolist():
            place = parse_place(tables.name(rank.pid, int(site)))
            lines.setdefault(place.file, set()).add(place.line)
    return {file: frozenset(of_file) for file, of_file in lines.items()}


def _functions_of_evaluation(found: Activities, own: Timeline, position: int) -> None:
    """A function called by the loop in which evaluation forwards run serves evaluation."""
    evaluation = own.phase_id(timeline.EVALUATION)
    for at, place in zip(found.segment[position].tolist(), found.place[position], strict=True):
        if at >= 0 and int(own.segments["phase"][at]) == evaluation and place and place.code not in found.loop:
            found.serves[place.code] = timeline.EVALUATION


def _label(
    found: Activities, own: Timeline, mine: Samples, position: int, sites: dict[str, set[Code]]
) -> dict[int, str]:
    """New phases for segments of user code: by their own samples, else as most samples between the same phases say."""
    other = own.phase_id(timeline.OTHER)
    votes: dict[int, Counted[str]] = {}
    between: dict[tuple[int, int], Counted[str]] = {}
    known: dict[tuple[int, Place | None, int], str] = {}
    has_loader = len(own.rows[BatchWait.code]) > 0
    forward = own.phase_id(timeline.FORWARD)
    weights = mine.weight_ns.tolist()
    for at, place, stack, weight in zip(
        found.segment[position].tolist(), found.place[position], mine.stack, weights, strict=True
    ):
        if at < 0 or int(own.segments["phase"][at]) != other or int(own.segments["kind"][at]) != 0:
            continue
        gap = _gap(own, at)
        key = (id(stack), place, gap[1])
        phase = known.get(key)
        if phase is None:
            makes_batch = gap[1] == forward and not has_loader
            phase = known[key] = _serves(found, stack, place, makes_batch, sites)
        votes.setdefault(at, Counted())[phase] += weight
        between.setdefault(gap, Counted())[phase] += weight
    labels = {at: votes_of.most_common(1)[0][0] for at, votes_of in votes.items()}
    general = {
        gap: counts.most_common(1)[0][0]
        for gap, counts in between.items()
        if counts.most_common(1)[0][1] >= AGREED * sum(counts.values())
    }
    kinds = own.segments["kind"]
    phases = own.segments["phase"]
    long_enough = _long_gaps(own, other)
    lengths = own.durations()
    usual = _usual_lengths(own, labels, lengths)
    for at in np.flatnonzero((phases == other) & (kinds == 0)).tolist():
        if at not in labels:
            gap = _gap(own, at)
            phase = general.get(gap, timeline.OTHER)
            if (phase in (timeline.DATA, timeline.COMMUNICATION) and at in long_enough) or (
                phase != timeline.OTHER and lengths[at] >= AS_LONG * usual.get((gap, phase), np.inf)
            ):
                labels[at] = phase
    return {at: phase for at, phase in labels.items() if phase != timeline.OTHER}


def _usual_lengths(
    own: Timeline, labels: dict[int, str], lengths: NDArray[np.int64]
) -> dict[tuple[tuple[int, int], str], float]:
    """(gap, phase) -> median length of the segments that samples gave that phase there."""
    found: dict[tuple[tuple[int, int], str], list[int]] = {}
    for at, phase in labels.items():
        found.setdefault((_gap(own, at), phase), []).append(int(lengths[at]))
    return {key: float(np.median(values)) for key, values in found.items()}


def _long_gaps(own: Timeline, other: int) -> set[int]:
    """Segments between phases that are long enough to be more than the loop's own overhead."""
    long = own.segments["end"] - own.segments["start"] > SHORTEST_GAP_NS
    return set(np.flatnonzero((own.segments["phase"] == other) & long).tolist())


def _gap(own: Timeline, at: int) -> tuple[int, int]:
    """The phases before and after a segment."""
    phases = own.segments["phase"]
    return int(phases[at - 1]) if at else -1, int(phases[at + 1]) if at + 1 < len(phases) else -1


def _serves(
    found: Activities, stack: Stack, place: Place | None, before_forward: bool, sites: dict[str, set[Code]]
) -> str:
    """The phase that a stack taken in user code serves."""
    files = [frame.file for frame in stack.frames]
    mine = [frame for frame in stack.frames if stack.is_user(frame) and frame.code not in found.loop]
    codes = {frame.code for frame in mine}
    if codes & sites[timeline.CHECKPOINT] or any(lib in file for file in files for lib in SAVING_LIBRARIES):
        return timeline.CHECKPOINT
    if any(found.serves.get(code) == timeline.EVALUATION for code in codes):
        return timeline.EVALUATION
    if builds_dataset(stack, found.datasets):
        return timeline.DATA
    if codes & sites[timeline.COMMUNICATION]:
        return timeline.COMMUNICATION
    if any(lib in file for file in files for lib in LOGGING_LIBRARIES):
        return timeline.LOGGING
    for phase in (timeline.CHECKPOINT, timeline.EVALUATION, timeline.LOGGING):
        if any(WORDS[phase].search(frame.function.rpartition(".")[2]) for frame in mine):
            return phase
    if stack.user and writes_lines(stack.user[-1].file, stack.user[-1].line):
        return timeline.LOGGING
    if place is not None and before_forward:
        if any(WORDS[timeline.DATA].search(frame.function.rpartition(".")[2]) for frame in mine):
            return timeline.DATA
        caller = _caller_line(stack, found.loop)
        if caller is not None and feeds_forward(
            caller.file, caller.line, found.forward_lines.get(caller.file, frozenset())
        ):
            return timeline.DATA
    return timeline.OTHER


def builds_dataset(stack: Stack, datasets: set[str]) -> bool:
    """Whether a dataset that a loader is made for is being built."""
    return any(
        frame.function.endswith(".__init__") and frame.function.split(".")[-2] in datasets for frame in stack.frames
    )


def _caller_line(stack: Stack, loop: set[Code]) -> Place | None:
    """The innermost line of the training loop itself."""
    last = None
    for frame in stack.user:
        if frame.code not in loop:
            break
        last = frame
    return last
