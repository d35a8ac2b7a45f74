"""Made-up trainings that learn badly: rates, gradients and units that make it so, and what only looks like it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from rankscope.analysis.facts import Facts
from rankscope.capture.sampling import Schedule
from rankscope.records.activations import ActivationStat, PredictionStat, UnitStat
from rankscope.records.inventory import Parameter
from rankscope.records.training import Metric
from rankscope.testing.trainings import MS, Training, Values
from rankscope.testing.writer import Writer

_schedule = Schedule(0.01)
DEPTH = 12

LAYERS = tuple(
    Parameter(f"layers.{i}.weight", (32, 32), "float32", True, "Linear", "1.0", storage=i) for i in range(DEPTH)
)
"""A plain deep network."""


def outputs(
    *,
    saturated: float = 0.0,
    kind: str = "ReLU",
    zeros: float = 0.5,
    dead: Callable[[int], float] = lambda step: 0.0,
    growth: float = 1.0,
    depth: int = DEPTH,
) -> Callable[[Writer, int, int, int], None]:
    """Looks at `depth` layers, each with an activation of 64 units of which `dead(step)` are dead; outputs grow by
    `growth` from layer to layer."""

    def write(w: Writer, rank: int, step: int, begin_ns: int) -> None:
        if not _schedule.sampled(step):
            return
        before = max((s for s in range(step) if _schedule.sampled(s)), default=0)
        lasting = min(dead(before), dead(step))
        for i in range(depth):
            at = begin_ns + (i + 1) * MS // 10
            size = growth**i
            common: dict[str, float | str] = {"model": "Net", "training": 1}
            w.put(ActivationStat, at, at, step, name=f"layers.{i}", rms=size, finite=1, grad=1, class_name="Linear",
                  **common)  # fmt: skip
            w.put(ActivationStat, at + 1, at + 1, step, name=f"acts.{i}", rms=size / 2, finite=1, grad=1,
                  class_name=kind, bounded=int(kind == "Sigmoid"), saturated=round(255 * saturated),
                  zeros=round(255 * (dead(step) + (1 - dead(step)) * zeros)), **common)  # fmt: skip
            w.put(UnitStat, at + 2, at + 2, step, name=f"acts.{i}", units=64, rows=128, dead=round(64 * dead(step)),
                  off=round(64 * dead(step)), lasting_dead=round(65535 * lasting),
                  lasting_off=round(65535 * lasting), looks=min(2, step + 1), **common)  # fmt: skip

    return write


def falling_by_depth(factor: float) -> Callable[[int, int, Parameter], Values]:
    """Gradients that shrink by `factor` from each layer to the one before it."""

    def gradient(rank: int, step: int, p: Parameter) -> Values:
        size = 0.01 * factor ** (DEPTH - 1 - int(p.path.split(".")[1]))
        return {"rms": size, "norm": size * 32}

    return gradient


def predictions(spread: float, entropy: float = 0.9) -> Callable[[Writer, int, int, int], None]:
    """What the model gives in training: how much it differs between the samples of a batch."""

    def extra(w: Writer, rank: int, step: int, begin_ns: int) -> None:
        if _schedule.sampled(step):
            w.put(PredictionStat, begin_ns, begin_ns, step, name="Net", entropy=entropy, spread=spread, units=10,
                  rows=32, least=-0.1, most=0.1, training=1, grad=1, finite=1)  # fmt: skip

    return extra


def too_high(*, recovers: bool = False) -> Training:
    """Steps of half the weights; the loss goes up thirtyfold, then a dead network predicts the same for all."""

    def loss(rank: int, step: int) -> float:
        if recovers and step > 8:
            return 2.4 * math.exp(-step / 20)
        return 2.4 + 6 * step * math.exp(-step / 8) if step < 50 else 2.3

    def gradient(rank: int, step: int, p: Parameter) -> Values:
        size = 0.02 * (1 + step) if step < 8 else 0.01
        return {"rms": size, "norm": size * math.sqrt(math.prod(p.shape))}

    def weight(rank: int, step: int, p: Parameter) -> Values:
        return {"update": 0.05 if step < 8 else 1e-4}

    return Training(optimizer="SGD", lr=lambda step: 5.0, loss=loss, gradient=gradient, raw_gradient=gradient,
                    weight=weight, extra=predictions(0.0))  # fmt: skip


def noisy_labels() -> Training:
    """The first step replaces the weights, as Adagrad's does; then the loss stays near the first one, for labels are
    mostly noise, but below it."""
    bad = too_high()
    return replace(bad, loss=lambda rank, step: (0.70, 2.1, 1.3)[step] if step < 3 else 0.635, extra=predictions(0.3))


def exploding() -> Training:
    """Gradients a thousand times larger from step 32 on, after small updates; the loss is lost there."""

    def gradient(rank: int, step: int, p: Parameter) -> Values:
        size = 1e-2 * (1000 if step >= 32 else 1)
        return {"rms": size, "norm": size * math.sqrt(math.prod(p.shape))}

    def loss(rank: int, step: int) -> float:
        return 2.0 - step / 40 if step < 33 else 40.0

    return Training(gradient=gradient, raw_gradient=gradient, loss=loss)


def exploding_forward() -> Training:
    """A network whose outputs grow tenfold in each layer, with SGD."""
    return Training(
        parameters=LAYERS,
        optimizer="SGD",
        extra=outputs(growth=10.0),
        loss=lambda rank, step: 1e9 * (1 + step),
        weight=lambda rank, step, p: {"update": 10.0},
    )


def vanishing(factor: float = 0.1, optimizer: str = "SGD", flat: bool = True) -> Training:
    """Twelve layers, each of which passes on a tenth of its gradient."""
    gradient = falling_by_depth(factor)

    def weight(rank: int, step: int, p: Parameter) -> Values:
        return {"update": 0.1 * gradient(rank, step, p)["rms"] if optimizer == "SGD" else 2e-4}

    training = Training(
        parameters=LAYERS,
        optimizer=optimizer,
        gradient=gradient,
        raw_gradient=gradient,
        weight=weight,
        extra=outputs(kind="Sigmoid", saturated=0.6, zeros=0.0),
    )
    return replace(training, loss=lambda rank, step: 2.3 - 0.001 * step) if flat else training


def falls(rank: int, step: int) -> float:
    """The loss of a training that learns."""
    return 0.4 + 1.9 * math.exp(-step / 25)


def dying(
    dead: Callable[[int], float], *, zeros: float = 0.5, gradient_zeros: float | None = None,
    loss: Callable[[int, int], float] = falls,
) -> Training:  # fmt: skip
    """A deep ReLU network whose units die as `dead(step)` says."""

    def gradient(rank: int, step: int, p: Parameter) -> Values:
        share = dead(step) if gradient_zeros is None else gradient_zeros
        return {"zeros": round(255 * share)}

    return Training(parameters=LAYERS, gradient=gradient, extra=outputs(dead=dead, zeros=zeros), loss=loss)


def coarse(
    changed: float = 0.0, *, optimizer: str = "AdamW", lr: Callable[[int], float] = lambda step: 6e-7
) -> Training:
    """A training in bfloat16 in which this share of the elements changes in a step."""
    parameters = tuple(replace(p, dtype="bfloat16") for p in Training().parameters)
    return Training(
        parameters=parameters,
        optimizer=optimizer,
        lr=lr,
        weight=lambda rank, step, p: {"changed": round(255 * changed), "update": 6e-7 * changed},
    )


def jumped(level: float, until: int = 1000) -> Training:
    """A loss that jumps at step 40, to this level, and is there until some step."""
    return Training(
        loss=lambda rank, step: level if 40 <= step < until else 0.4 + 1.9 * math.exp(-step / 12) + 0.01 * (step % 3)
    )


def flat(steps: int = 2100, fall: float = 0.0) -> Training:
    """A loss that stays at its first value, or falls by some part of it."""

    def loss(rank: int, step: int) -> float:
        return 2.303 * (1 - fall * step / steps) + 0.01 * math.sin(7 * step)

    return Training(steps=steps, loss=loss, extra=predictions(0.01, entropy=0.999))


def evaluated(rise: float) -> Training:
    """A training that is evaluated every 10 steps; its evaluation loss falls to half and then rises by this part."""

    def extra(w: Writer, rank: int, step: int, begin_ns: int) -> None:
        if step % 10 == 9:
            value = 2.0 - step / 100 if step < 100 else 1.0 * (1 + rise * (step - 100) / 100)
            w.put(Metric, begin_ns, begin_ns, step, name="val_loss", value=value)

    return Training(steps=200, extra=extra, loss=lambda rank, step: 0.01 + 2.0 * math.exp(-step / 40))


FAULTS: dict[str, Callable[[], Facts]] = {
    "learning-rate-too-high": too_high().facts,
    "exploding-gradients": exploding().facts,
    "vanishing-gradients": vanishing().facts,
    "dead-units": dying(
        lambda step: 0.42 if step >= 30 else 0.0, loss=lambda rank, step: 200.0 if step == 30 else falls(rank, step)
    ).facts,
    "update-lost-to-precision": coarse().facts,
    "loss-spike": jumped(9.0).facts,
    "loss-not-decreasing": flat().facts,
    "overfitting": evaluated(0.8).facts,
}
"""Cause -> a training with that fault."""

HEALTHY: dict[str, Callable[[], Facts]] = {
    "labels full of noise": noisy_labels().facts,
    "large first steps that learn": too_high(recovers=True).facts,
    "gradients that differ by depth": vanishing(0.6, "AdamW", flat=False).facts,
    "vanishing gradients that Adam makes up for": vanishing(0.3, "AdamW", flat=False).facts,
    "units that are off from the start": dying(lambda step: 0.35).facts,
    "sparse units that wait for their input": dying(
        lambda step: 0.2 if step < 8 else 0.6, zeros=0.97, gradient_zeros=0.6
    ).facts,
    "units that are off but learn": dying(lambda step: 0.0 if step < 8 else 0.6, gradient_zeros=0.0).facts,
    "bfloat16 with updates that arrive": coarse(0.4, lr=lambda step: 1e-3).facts,
    "a loss that jumps and comes back": jumped(9.0, until=42).facts,
    "a short flat loss": flat(steps=150).facts,
    "an evaluation loss that rises a little": evaluated(0.2).facts,
    "bfloat16 with rounding at random": coarse(0.01, optimizer="AdamWStochasticRounding").facts,
}
"""Name -> a training with nothing wrong."""
