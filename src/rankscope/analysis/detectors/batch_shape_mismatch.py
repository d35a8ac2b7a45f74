"""Finds inputs and labels that disagree in size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from rankscope.analysis import wording
from rankscope.analysis.batch_contents import TRAINING, Seen, batch_tensors
from rankscope.analysis.batch_groups import asked_for, batches
from rankscope.analysis.detector import Detector
from rankscope.analysis.ends import End
from rankscope.analysis.facts import Facts
from rankscope.analysis.failures import failure
from rankscope.analysis.loss_calls import Call, by_line, loss_calls, raised_calls
from rankscope.analysis.stacks import Place
from rankscope.base.finding import Cost, Evidence, Finding, Severity
from rankscope.records.batch_contents import FROM_LOADER, GROWN, ONE_FOR_MANY
from rankscope.records.record import Record

TEXT = re.compile(
    r"Expected input batch_size \((?P<a>\d+)\) to match target batch_size \((?P<b>\d+)\)|"
    r"Expected target size \[(?P<sizes>[\d, ]+)\], got \[(?P<got>[\d, ]+)\]|"
    r"Target size \(torch\.Size\(\[(?P<target>[\d, ]*)\]\)\) must be the same as input size "
    r"\(torch\.Size\(\[(?P<input>[\d, ]*)\]\)\)|"
    r"Using a target size \(torch\.Size\(\[(?P<t>[\d, ]*)\]\)\) that is different to the input size "
    r"\(torch\.Size\(\[(?P<i>[\d, ]*)\]\)\)"
)
"""Of torch's errors, those of a loss whose input and target have other sizes."""
SAME_FAILURE_NS = 5_000_000_000
"""Between the call that raised and the end of the process: exception handlers may write something before."""
NEARLY_ALL = 0.9
"""Of the calls of a line that broadcast: a last short batch may have one sample, which fits everything."""
FEWEST_BATCHES = 3
"""From which a rule of the loader is read."""
FEWEST_PADDED = 4
"""Batches of each rank whose length is the same: with so many, no length of the batch's own explains it."""


class BatchShapeMismatch(Detector):
    """Inputs and labels of a batch disagree in size.

    ## What it is
    A batch whose samples were collated into one (50 labels, 1 input), predictions [N, 1] against targets [N], which
    an element-wise loss expands to N x N pairs, ranks whose collate function pads to different lengths.

    ## What shows it
    The shapes that meet in the loss, the error of the loss that raised, the first dimensions of the tensors of one
    batch against the number of samples that the loader was asked for.

    ## What else looks like it
    Lists of boxes, graphs, packed sequences and images of different sizes have first dimensions of their own; shapes
    with as many dimensions may be meant to be expanded; lengths that change from batch to batch are padding.

    ## What to do
    `squeeze(-1)` the prediction, or give the target its last dimension; look at the collate function.
    """

    name = "batch-shape-mismatch"
    needs: ClassVar[tuple[type[Record], ...]] = ()
    any_length = True
    inference = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        found = list(_stopped(facts)) or [*_broadcast(facts), *_collapsed(facts)] or list(_padded(facts))
        for one in found:
            yield Finding(
                cause=self.name,
                severity=one.severity,
                confidence=one.confidence,
                title=one.title,
                ranks=facts.numbers(one.positions),
                all_ranks=len(one.positions) == facts.size,
                phase="forward",
                component=one.component,
                location=wording.location(one.place),
                first_step=one.first,
                last_step=one.last,
                cost=Cost(None, None, None),
                evidence=one.evidence,
                next=(
                    "compare the shapes of prediction and target: `squeeze(-1)` one, or `unsqueeze(-1)` the other",
                    "look at what the collate function (or processor) does with the batch dimension and with padding",
                ),
            )


@dataclass(frozen=True, slots=True)
class _Mismatch:
    """What is in a finding of this detector alone."""

    positions: tuple[int, ...]
    severity: Severity
    confidence: float
    title: str
    component: str | None
    place: Place | None
    first: int
    last: int | None
    evidence: tuple[Evidence, ...]


def _stopped(facts: Facts) -> Iterator[_Mismatch]:
    """A loss that raised, and ended the run."""
    stopped = failure(facts)
    for end in stopped.roots if stopped is not None else ():
        calls = [call for call in raised_calls(facts) if _raised_then(call, end)]
        found = TEXT.search(end.exception)
        if not calls and found is None:
            continue
        assert stopped is not None
        positions = tuple(sorted(other.position for other in stopped.roots))
        if calls:
            call = calls[-1]
            sizes, told = call.sizes, f"{call.function} of {call.shapes}"
        else:
            assert found is not None
            parts = [part for part in found.groups() if part is not None][:2]
            sizes, told = (_sizes(parts[0]), _sizes(parts[1])), f"a loss of [{parts[0]}] against [{parts[1]}]"
        collapsed = _collapsed_batches(facts)
        evidence = [
            Evidence("elements of the prediction", float(_numel(sizes[0])), "count", facts.numbers(positions)),
            Evidence("elements of the target", float(_numel(sizes[1])), "count", facts.numbers(positions)),
        ]
        if collapsed:
            one, asked = collapsed[-1]
            evidence.append(Evidence(f"samples of which {one.path} of {one.source} shows 1", asked, "count"))
        place = end.place or (calls[-1].place if calls else None)
        yield _Mismatch(
            positions, "critical", 0.95,
            f"{wording.numbered(facts.numbers(positions))}: prediction and target disagree in {told}, in step "
            f"{end.step}{wording.at(place)}",
            _named(collapsed[-1][0]) if collapsed else calls[-1].function if calls else None, place, end.step, None,
            tuple(evidence),
        )  # fmt: skip
        return


def _raised_then(call: Call, end: End) -> bool:
    """Whether a loss whose shapes disagree raised what ended its rank."""
    if call.position != end.position or not 0 <= end.time_ns - call.time_ns < SAME_FAILURE_NS:
        return False
    prediction, target = call.sizes
    if call.function in ("cross_entropy", "nll_loss") and len(target) == len(prediction) - 1:
        return prediction[:1] != target[:1] or prediction[2:] != target[1:]
    return prediction != target and call.function != "ctc_loss"


def _broadcast(facts: Facts) -> Iterator[_Mismatch]:
    """Losses that expand what they are given."""
    for (function, place), same in by_line(loss_calls(facts)).items():
        wrong = [call for call in same if call.grad and call.broadcast in (GROWN, ONE_FOR_MANY)]
        trained = [call for call in same if call.grad]
        if not wrong or len(wrong) < NEARLY_ALL * len(trained):
            continue
        last, positions = wrong[-1], tuple(sorted({call.position for call in wrong}))
        grown = last.broadcast == GROWN
        effect = (
            "each prediction is compared with every target" if grown else "one prediction is compared with all targets"
        )
        yield _Mismatch(
            positions, "critical" if grown else "warning", 0.95 if grown else 0.75,
            f"{function} of {last.shapes}: {effect}{wording.at(place)}",
            function, place, min(c.step for c in wrong), max(c.step for c in wrong), tuple(_of_call(last, wrong)),
        )  # fmt: skip


def _of_call(last: Call, wrong: list[Call]) -> Iterator[Evidence]:
    prediction, target = last.sizes
    pairs = 1
    for size in (*prediction, *target):
        pairs *= size
    yield Evidence("calls looked at that expand their input", float(len(wrong)), "count")
    yield Evidence("elements of the target", float(_numel(target)), "count")
    if last.broadcast == GROWN:
        yield Evidence("differences that are averaged", float(pairs), "count")


def _collapsed(facts: Facts) -> Iterator[_Mismatch]:
    """Batches whose input has one sample and whose labels have many."""
    found = _collapsed_batches(facts)
    if len(found) < FEWEST_BATCHES:
        return
    one, asked = found[-1]
    positions = tuple(sorted({tensor.position for tensor, _ in found}))
    yield _Mismatch(
        positions, "warning", 0.8,
        f"batches of {one.source}: {one.path} has 1 sample where {asked:.0f} were asked for and labelled",
        _named(one), None, min(t.step for t, _ in found), max(t.step for t, _ in found),
        (
            Evidence("batches looked at with one sample in that tensor", float(len(found)), "count"),
            Evidence("samples that the loader was asked for", asked, "count"),
            Evidence("first dimension of that tensor", float(one.sizes[0]), "count"),
        ),
    )  # fmt: skip


def _named(tensor: Seen) -> str:
    """`batch['signal'] of Windows`."""
    return f"{tensor.path} of {tensor.source}"


def _collapsed_batches(facts: Facts) -> list[tuple[Seen, float]]:
    """(its collapsed input, samples asked for) of the batches whose labels have a place for every sample."""
    found = []
    for batch in batches(facts):
        asked = asked_for(facts, batch[0])
        if asked is None or asked < 2:
            continue
        many = [t for t in batch if t.sizes and t.sizes[0] == asked]
        single = [t for t in batch if len(t.sizes) >= 2 and t.sizes[0] == 1 and asked not in t.sizes]
        # A constant of one row may lie beside a true input, which has several numbers for each sample.
        if many and single and all(_numel(t.sizes) <= max(asked, _numel(single[0].sizes)) for t in many):
            found.append((single[0], float(asked)))
    return found


def _padded(facts: Facts) -> Iterator[_Mismatch]:
    """Tensors that have one length on some ranks and another one on others, in all batches."""
    lengths: dict[tuple[str, str, str, int], dict[int, list[tuple[int, ...]]]] = {}
    for seen in batch_tensors(facts):
        if seen.origin == FROM_LOADER and seen.phase == TRAINING and len(seen.sizes) >= 2:
            key = seen.source, seen.path, seen.dtype, len(seen.sizes)
            lengths.setdefault(key, {}).setdefault(seen.position, []).append(seen.sizes[1:])
    for (source, path, _, _), by_rank in lengths.items():
        constant = {p: sizes[0] for p, sizes in by_rank.items() if len(set(sizes)) == 1 and len(sizes) >= FEWEST_PADDED}
        if len(constant) < 2 or len(constant) < facts.size or len(set(constant.values())) < 2:
            continue
        camps: dict[tuple[int, ...], list[int]] = {}
        for position, sizes in constant.items():
            camps.setdefault(sizes, []).append(position)
        ordered = sorted(camps.items(), key=lambda camp: len(camp[1]))
        even = len(ordered[0][1]) == len(ordered[-1][1])
        odd = tuple(sorted(constant)) if even else tuple(ordered[0][1])
        steps = [s.step for s in batch_tensors(facts) if s.path == path and s.source == source and s.position in odd]
        told = " and ".join(
            f"{list(sizes)} on {wording.numbered(facts.numbers(camp))}" for sizes, camp in sorted(camps.items())
        )
        yield _Mismatch(
            odd, "warning", 0.75, f"{path} of {source} has the sizes {told}, in every batch",
            source, None, min(steps), max(steps),
            tuple(
                Evidence("elements of a sample", float(_numel(sizes)), "count", facts.numbers(camp))
                for sizes, camp in sorted(camps.items())
            ),
        )  # fmt: skip
        return


def _numel(sizes: tuple[int, ...]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in re.findall(r"\d+", text))
