"""Finds inputs of evaluation that were prepared in another way than those of training."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rankscope.analysis.batch_contents import EVALUATION, TRAINING, Seen, batch_tensors
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.batch_contents import FROM_LOADER, INTO_MODEL, BatchTensor

FACTOR = 1.8
"""Between the deviations of both phases. Augmentation (crops, colours, noise of the size of the data) changes it by up
to 1.4; a normalisation that is left out by 2 (0.5/0.5) to 4 (ImageNet), a division by 255 by 255."""
SHIFT = 1.5
"""Between their means, in deviations of either one."""
ALIKE = 1.5
"""Factor within which the ratio of the ranges must agree with that of the deviations: another scale changes both
alike, other data (outliers, a class that is missing) do not."""
NOISE = 3.0
"""How many times the spread between batches of one phase a difference must be."""
SPREAD = 0.05
"""Of the logarithm of the deviation, where a phase has too few batches to show it."""
FEWEST = 3
"""Batches of training; of evaluation one will do, as it is held against the spread of training."""
FEWEST_ELEMENTS = 64
"""Of a batch: fewer numbers have no deviation to speak of."""
APART = 1.5
"""Factor between the nearest batches of both phases: no batch of the one looks like one of the other."""
RESCALED = (255.0, 256.0, 127.5, 128.0)


@dataclass(frozen=True, slots=True)
class _Phase:
    """Sizes of one tensor in one phase: medians over batches, and their spread."""

    mean: float
    std: float
    least: float
    most: float
    stds: tuple[float, float]
    """The smallest and the largest deviation of a batch."""
    spread: float
    """Of the logarithm of the deviation between batches."""
    shift: float
    """Of the mean between batches."""
    batches: int
    first: int
    last: int


class TrainEvalMismatch(Detector):
    """Evaluation gets differently prepared inputs than training.

    ## What it is
    The transform of the evaluation set lacks a step that the training set's has, or has one more: pixels up to 255
    against pixels up to 1, without the normalisation, normalised twice.

    ## What shows it
    Mean, deviation and range of the same input in training and in evaluation (told by gradients and the training
    flag): they differ by far more than batches of training do among each other, as by another scale.

    ## What else looks like it
    Augmentation changes the deviation by less than a factor of 1.8. Outliers change the range and not the deviation.
    Inputs whose scale varies in training (noise of all sizes) are not compared.

    ## What to do
    Use the same normalisation in both transforms; print mean and deviation of one batch of each.
    """

    name = "train-eval-mismatch"
    needs = (BatchTensor,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        pairs = list(_pairs(facts))
        if not pairs:
            raise CannotExamine("no input that was looked at both in training and in evaluation")
        found = [(a, b, c, words) for a, b, c in pairs if (words := _different(b, c))]
        if found:
            yield self._finding(facts, *found[0])

    def _finding(
        self, facts: Facts, seen: Sequence[Seen], training: _Phase, evaluation: _Phase, words: str
    ) -> Finding:
        positions = tuple(sorted({one.position for one in seen}))
        one = seen[0]
        what = f"{one.path} of {one.source}"
        return Finding(
            cause=self.name,
            severity="warning",
            confidence=0.9,
            title=f"evaluation gets {what} {words}",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="evaluation",
            component=one.source,
            location=None,
            first_step=evaluation.first,
            last_step=evaluation.last,
            cost=Cost(None, None, None),
            evidence=(
                Evidence("standard deviation in training", training.std, ""),
                Evidence("standard deviation in evaluation", evaluation.std, ""),
                Evidence("mean in training", training.mean, ""),
                Evidence("mean in evaluation", evaluation.mean, ""),
                Evidence("largest element in training", training.most, ""),
                Evidence("largest element in evaluation", evaluation.most, ""),
                Evidence("batches of training looked at", float(training.batches), "count"),
                Evidence("batches of evaluation looked at", float(evaluation.batches), "count"),
            ),
            next=(
                "give both the same normalisation: compare the two transforms, and what the loops do to a batch",
                "print mean and standard deviation of one batch of each, just before the model",
            ),
        )


def _pairs(facts: Facts) -> Iterator[tuple[list[Seen], _Phase, _Phase]]:
    """Inputs of evaluation with both phases: those into models, and only where none could be read those of loaders."""
    of_models: dict[tuple[str, str, int], list[Seen]] = defaultdict(list)
    of_loaders: dict[tuple[str, str, int], list[Seen]] = defaultdict(list)
    evaluated = False
    for seen in batch_tensors(facts):
        if seen.origin == FROM_LOADER and seen.phase == EVALUATION:
            evaluated = True
        if not seen.floating or math.prod(seen.sizes) < FEWEST_ELEMENTS or not math.isfinite(seen.std):
            continue
        if seen.origin == INTO_MODEL:
            of_models[seen.source, seen.path, len(seen.sizes)].append(seen)
        elif seen.origin == FROM_LOADER and seen.phase:
            of_loaders["", seen.path, len(seen.sizes)].append(seen)
    if of_loaders and not evaluated:
        return  # a model that is called without data of its own samples from noise
    for groups in (of_models, of_loaders):
        found = [pair for all_of in groups.values() if (pair := _pair(all_of)) is not None]
        if found:
            yield from found
            return


def _pair(all_of: Sequence[Seen]) -> tuple[list[Seen], _Phase, _Phase] | None:
    training = [one for one in all_of if one.phase == TRAINING]
    evaluation = [one for one in all_of if one.phase == EVALUATION]
    if len(training) < FEWEST or not evaluation:
        return None
    return evaluation, _phase(training), _phase(evaluation)


def _phase(batches: Sequence[Seen]) -> _Phase:
    stds = np.array([max(one.std, 1e-30) for one in batches])
    means = np.array([one.mean for one in batches])
    return _Phase(
        float(np.median(means)), float(np.median(stds)), min(one.least for one in batches),
        max(one.most for one in batches), (float(stds.min()), float(stds.max())), float(np.std(np.log(stds))),
        float(np.std(means)), len(batches), min(one.step for one in batches), max(one.step for one in batches),
    )  # fmt: skip


def _different(training: _Phase, evaluation: _Phase) -> str:
    """How evaluation differs, in words; empty: not by more than chance and augmentation."""
    if training.std < 1e-12 or evaluation.std < 1e-12:
        return ""  # ones or zeros: a mask
    ratio = evaluation.std / training.std
    noise = max(training.spread, evaluation.spread if evaluation.batches >= FEWEST else 0.0, SPREAD)
    spans = (training.most - training.least, evaluation.most - evaluation.least)
    ranges = spans[1] / max(spans[0], 1e-30)
    scaled = abs(math.log(ratio)) >= max(math.log(FACTOR), NOISE * noise) and _gap(training, evaluation) >= APART
    if scaled and abs(math.log(ranges / ratio)) <= math.log(ALIKE):
        factor = ratio if ratio > 1 else 1 / ratio
        near = next((f for f in RESCALED if abs(factor / f - 1) < 0.1), None)
        shown = f"{near:g}" if near is not None else f"{factor:.3g}"
        return f"{shown} times {'larger' if ratio > 1 else 'smaller'} than training does"
    shift = abs(evaluation.mean - training.mean)
    largest = max(training.std, evaluation.std)
    if shift >= SHIFT * largest and shift >= NOISE * max(training.shift, evaluation.shift):
        return f"shifted by {shift / largest:.2g} standard deviations against training"
    return ""


def _gap(a: _Phase, b: _Phase) -> float:
    """Factor between the nearest deviations of two phases; below 1 where they overlap."""
    return max(a.stds[0] / b.stds[1], b.stds[0] / a.stds[1])
