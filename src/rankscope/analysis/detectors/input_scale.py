"""Finds inputs that were scaled twice, or not at all."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from rankscope.analysis.batch_contents import TRAINING, Seen, batch_tensors
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.first_layers import Layer, first_layers
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.batch_contents import FROM_LOADER, INTO_LAYER, BatchTensor

PIXEL = 255.0
NEAR = 0.02
"""Of the end of a range: the brightest pixel of a batch is hardly ever below 98 % of what there is."""
FEWEST_PIXELS = 64
"""Numbers of a sample that may be an image."""
LARGE = 100.0
"""Root mean square of an input that goes into weights made for numbers around 1: gradients of the layer are so many
times larger than those of the next one, and the curvature 10,000 times."""
SMALL = 0.005
"""The same of an input that is too small: pixels divided by 255 twice have 0.002, quiet sound 0.01."""
UNHEARD = 0.5
"""Times the root of the layer's inputs: below it the layer's bias, as torch makes it, outweighs the input."""
FEWEST_LOOKS = 2
EPSILON = 1e-5
"""Of torch's normalisations, added to the variance."""
NORMALISED = {
    "0.5 and 0.5": ((0.5,), (0.5,)),
    "those of MNIST": ((0.1307,), (0.3081,)),
    "those of Fashion-MNIST": ((0.2860,), (0.3530,)),
    "those of ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "those of CIFAR-10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "those of CIFAR-10, as often copied": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "those of CIFAR-100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "those of CLIP": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
}
"""Mean and deviation by which images are normalised: applied twice, black and white become numbers of their own."""


@dataclass(frozen=True, slots=True)
class _Input:
    """What goes into the first layer of a model, over all looks: medians."""

    layer: Layer
    seen: tuple[Seen, ...]
    rms: float
    mean: float
    std: float
    least: float
    most: float
    integral: bool

    @property
    def image(self) -> bool:
        """Whether a sample has numbers enough for one."""
        return math.prod(self.seen[0].sizes[1:]) >= FEWEST_PIXELS


class InputScale(Detector):
    """Inputs are scaled twice, or not at all.

    ## What it is
    Pixels from 0 to 255 that go into the first layer as they are, or that were divided by 255 twice and end at 0.004;
    a normalisation that is in the data set and in the loop as well; columns of raw numbers in the thousands.

    ## What shows it
    The input of the first layer with weights, on the deeply recorded steps, after whatever the data set, the loop and
    the model's forward did to it; its whole numbers up to 255, its size against the layer's bias, its ends.

    ## What else looks like it
    A normalisation as first layer, or right behind the first one, makes the scale of its own: nothing is said, unless
    the numbers are so small that its epsilon outweighs them. Embeddings take numbers of tokens. Zeros do not count:
    words counted and one-hot codes are small on average.

    ## What to do
    Scale once, in one place: divide by 255 or let `ToTensor` do it; subtract the mean of the training set.
    """

    name = "input-scale"
    needs = (BatchTensor,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        inputs = list(_inputs(facts))
        if not inputs:
            raise CannotExamine("the input of no first layer with weights was looked at")
        for one in inputs:
            found = _too_large(one) or _too_small(facts, one) or _normalised_twice(one)
            if found is not None:
                yield self._finding(facts, one, *found)
                return

    def _finding(self, facts: Facts, one: _Input, words: str, confidence: float) -> Finding:
        positions = tuple(sorted({seen.position for seen in one.seen}))
        return Finding(
            cause=self.name,
            severity="warning",
            confidence=confidence,
            title=f"{words}, goes into {one.layer.path} of {one.layer.model}",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="data",
            component=one.layer.path,
            location=None,
            first_step=min(seen.step for seen in one.seen),
            last_step=max(seen.step for seen in one.seen),
            cost=Cost(None, None, None),
            evidence=(
                Evidence("root mean square of the input's elements that are not zero", one.rms, ""),
                Evidence("mean", one.mean, ""),
                Evidence("standard deviation", one.std, ""),
                Evidence("smallest element", one.least, ""),
                Evidence("largest element", one.most, ""),
                Evidence("looks at the input", float(len(one.seen)), "count"),
            ),
            next=(
                "scale inputs once: to a range around 0 to 1, or to mean 0 and deviation 1",
                "follow one batch from the data set through the loop into the model, and print its range",
            ),
        )


def _inputs(facts: Facts) -> Iterator[_Input]:
    looks: dict[tuple[str, str], list[Seen]] = defaultdict(list)
    for seen in batch_tensors(facts):
        if seen.origin == INTO_LAYER and seen.phase == TRAINING and math.isfinite(seen.std):
            looks[seen.source, seen.path].append(seen)
    layers = first_layers(facts)
    for key, all_of in looks.items():
        layer = layers.get(key)
        if layer is None or len(all_of) < FEWEST_LOOKS or layer.fan_in < 2:
            continue
        yield _Input(
            layer, tuple(all_of), _median(one.rms for one in all_of), _median(one.mean for one in all_of),
            _median(one.std for one in all_of), _median(one.least for one in all_of),
            _median(one.most for one in all_of), all(one.integral for one in all_of),
        )  # fmt: skip


def _median(values: Iterable[float]) -> float:
    return float(np.median(list(values)))


def _too_large(one: _Input) -> tuple[str, float] | None:
    if one.layer.normalised:
        return None
    if one.integral and one.least >= 0 and PIXEL / 2 < one.most <= PIXEL and one.image and one.std > 0:
        return f"an input of whole numbers up to {one.most:.0f}, pixels that nobody has scaled", 0.9
    if one.rms > LARGE:
        return f"an input of a size of {one.rms:.3g} (root mean square), which nobody has scaled", 0.65
    return None


def _too_small(facts: Facts, one: _Input) -> tuple[str, float] | None:
    if not 0 < one.rms < SMALL or one.rms * math.sqrt(one.layer.fan_in) >= UNHEARD:
        return None
    if one.layer.normalised and one.layer.output_variance > 10 * EPSILON:
        return None
    twice = _divided(facts, one)
    if twice is not None:
        return f"an input that ends at {one.most:.2g}, divided by {twice:g} once more than its batch", 0.95
    if one.least >= 0 and (1 - 10 * NEAR) / PIXEL <= one.most <= (1 + NEAR) / PIXEL and one.image:
        return f"an input that ends at {one.most:.2g}, which is 1/255: pixels divided by 255 twice", 0.9
    return f"an input of a size of {one.rms:.2g} (root mean square), which the layer's bias outweighs", 0.65


def _divided(facts: Facts, one: _Input) -> float | None:
    """By what the program divided batches that were scaled already; None where it did not."""
    layer = one.seen[-1]
    for seen in batch_tensors(facts):
        same = seen.origin == FROM_LOADER and seen.position == layer.position and seen.step == layer.step
        if not same or not seen.floating or seen.sizes[:1] != layer.sizes[:1] or not 0 < seen.most <= 1:
            continue
        for by in (PIXEL, PIXEL + 1):
            if abs(seen.most / max(layer.most, 1e-30) / by - 1) < NEAR and seen.least >= 0:
                return by
    return None


def _normalised_twice(one: _Input) -> tuple[str, float] | None:
    if one.layer.normalised or not one.image:
        return None
    for words, (means, deviations) in NORMALISED.items():
        black, white = (
            [((value - m) / d - m) / d for m, d in zip(means, deviations, strict=True)] for value in (0.0, 1.0)
        )
        span = max(white) - min(black)
        if abs(one.least - min(black)) < NEAR * span and abs(one.most - max(white)) < NEAR * span:
            return f"an input from {one.least:.3g} to {one.most:.3g}: mean and deviation ({words}) taken twice", 0.85
    return None
