"""Made-up trainings with faults between backward and optimizer, and of what must be equal over ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rankscope.analysis.facts import Facts
from rankscope.records.collective import Collective
from rankscope.records.gradient_calls import (
    NOT_FINITE,
    OUTSIDE_CLIP,
    SUMMED_TWICE,
    GradientClip,
    GradientSet,
    LossFactor,
    ScalerStep,
    Wrapping,
)
from rankscope.records.inventory import Parameter
from rankscope.records.training import Backward, Call, Forward
from rankscope.testing.trainings import MS, PARAMETERS, SITE, Training, Values, fingerprint
from rankscope.testing.writer import Writer

Extra = Callable[[Writer, int, int, int], None]

TRAIN: Final = "/home/user/train.py"
CLIP_SITE: Final = f"{TRAIN}:44:main"
MODULE_SITE: Final = f"{TRAIN}:37:main"
NO_SYNC_SITE: Final = f"{TRAIN}:36:main"
REDUCE_SITE: Final = f"{TRAIN}:43:average_gradients"
FORWARD_SITE: Final = "/home/user/model.py:21:Net.forward"
ELEMENTS: Final = sum(math.prod(p.shape) for p in PARAMETERS)


def sampled(step: int) -> bool:
    return step < 4 or step & (step - 1) == 0 or step % 16 == 0


def own(kind: str, rank: int, step: int, parameter: Parameter) -> Values:
    """A gradient or weight that each rank has for itself."""
    size = 0.01 * (1 + rank * (0.2 + (fingerprint(parameter.path, step) >> 20) % 1009 / 1e4))
    return {"fingerprint": fingerprint(kind, parameter.path, step, rank), "rms": size}


def own_gradient(rank: int, step: int, parameter: Parameter) -> Values:
    return own("gradient", rank, step, parameter)


def own_weight(rank: int, step: int, parameter: Parameter) -> Values:
    """Equal at the start (0.1), and then on its own way."""
    return {
        "fingerprint": fingerprint("weight", parameter.path, step, rank),
        "rms": 0.1 * (1 + 1e-3 * rank * min(step, 1)),
    }


def only(path: str, change: Callable[[int, int, Parameter], Values]) -> Callable[[int, int, Parameter], Values]:
    """The change for one parameter alone."""
    return lambda rank, step, p: change(rank, step, p) if p.path == path else {}


def wrapping(**values: int | str) -> Extra:
    """The wrapper's records on sampled steps."""

    def write(w: Writer, rank: int, step: int, t: int) -> None:
        if sampled(step):
            fields: dict[str, int | str] = {
                "name": "Net", "parameters": 7, "members": "0,1", "through": 1, "broadcast_buffers": 1,
                "synchronises": 1, **values,
            }  # fmt: skip
            w.put(Wrapping, t + 15 * MS, t + 15 * MS, step, **fields)

    return write


def factor(value: float | Callable[[int], float], micro_batches: int = 1) -> Extra:
    """What losses are multiplied with."""

    def write(w: Writer, rank: int, step: int, t: int) -> None:
        for micro in range(micro_batches if sampled(step) else 0):
            number = value(step) if callable(value) else value
            w.put(LossFactor, t, t, step, name=f"{TRAIN}:40:main", factor=number, micro_batch=micro)

    return write


def clip(limit: float = 1.0, norm: Callable[[int], float] = lambda rank: 2.0, **values: float) -> Extra:
    """A clipping on each step."""

    def write(w: Writer, rank: int, step: int, t: int) -> None:
        fields: dict[str, float | str] = {"limit": limit, "norm": norm(rank), "scale": 1.0, "given": 7, **values}
        w.put(GradientClip, t + 14 * MS, t + 14 * MS, step, name="clip_grad_norm_", site=CLIP_SITE, **fields)

    return write


def outside(names: str, count: int, norm: float) -> Extra:
    def write(w: Writer, rank: int, step: int, t: int) -> None:
        if sampled(step):
            w.put(GradientSet, t + 15 * MS, t + 15 * MS, step, name=names, count=count, of=7, norm=norm, rest=1.0,
                  what=OUTSIDE_CLIP, optimizer=1)  # fmt: skip

    return write


def reduces(elements: int = ELEMENTS, at_ms: float = 14.5, every: int = 1) -> Extra:
    """A reduction by hand after backward."""

    def write(w: Writer, rank: int, step: int, t: int) -> None:
        if step % every == every - 1:
            at = t + int(at_ms * MS)
            w.put(Collective, at, at + MS // 10, step, name="allreduce", group="group:default", sequence=1000 + step,
                  bytes=4 * elements, site=REDUCE_SITE, elements=elements)  # fmt: skip

    return write


def scaler(scale: Callable[[int], float], attempts: Callable[[int], int] = lambda step: 1) -> Extra:
    """Attempts of a GradScaler in a step, of which the last one succeeds."""

    def write(w: Writer, rank: int, step: int, t: int) -> None:
        for attempt in range(n := attempts(step)):
            at = t + 14 * MS + attempt
            skipped = int(attempt < n - 1)
            if skipped:
                w.put(Forward, t + attempt, t + attempt, step, name="Net", elements=512, model="Net", training=1,
                      grad=1, trained=1)  # fmt: skip
                w.put(Backward, t + attempt, t + attempt, step, site=SITE, collectives=1)
            w.put(ScalerStep, at, at, step, name="AdamW", scale=scale(step) / 2**attempt, site=CLIP_SITE, optimizer=1,
                  skipped=skipped)  # fmt: skip
            if skipped and attempt < 4:
                w.put(GradientSet, at, at, step, name="layers.0.bias layers.0.weight embed.weight", count=3, of=7,
                      what=NOT_FINITE)  # fmt: skip

    return write


def bucket(w: Writer, rank: int, step: int, t: int) -> None:
    """The wrapper's reduction in backward, of all gradients."""
    w.put(Collective, t + 10 * MS, t + 11 * MS, step, name="allreduce_", group="group:default", sequence=2000 + step,
          bytes=4 * ELEMENTS, elements=ELEMENTS, in_backward=1)  # fmt: skip


def both(*parts: Extra) -> Extra:
    def write(w: Writer, rank: int, step: int, t: int) -> None:
        for part in parts:
            part(w, rank, step, t)

    return write


MANUAL: Final = Training(
    wrapper="", optimizer="SGD", raw_gradient=own_gradient, extra=both(reduces(), factor(1.0)),
    gradient=lambda rank, step, p: {"rms": 0.009},
)  # fmt: skip
"""Gradients are averaged by hand: each rank's own after backward, equal ones for the optimizer."""
WRAPPED: Final = replace(MANUAL, wrapper="DistributedDataParallel", raw_gradient=Training.raw_gradient,
                         gradient=Training.gradient, extra=both(wrapping(), factor(1.0)))  # fmt: skip


def bypassed() -> Facts:
    return replace(
        WRAPPED, wrapper="", gradient=own_gradient, raw_gradient=own_gradient, weight=own_weight,
        extra=both(wrapping(through=0, past=1, past_site=MODULE_SITE), start_up()),
    ).facts()  # fmt: skip


def start_up() -> Extra:
    """What making a wrapper communicates."""

    def write(w: Writer, rank: int, step: int, t: int) -> None:
        if not step:
            w.put(Collective, t - MS, t - MS // 2, 0, name="broadcast", group="group:default", elements=64,
                  site=NO_SYNC_SITE)  # fmt: skip

    return write


def diverged() -> Facts:
    """Rank 1 has another learning rate from step 20 on: seen at 32."""
    return replace(
        MANUAL, weight=lambda rank, step, p: own_weight(rank, step, p) if step > 20 else {},
    ).facts()  # fmt: skip


def doubled() -> Facts:
    return replace(
        WRAPPED, extra=both(wrapping(), bucket, reduces(), factor(1.0)), gradient=lambda rank, step, p: {"rms": 0.02},
        raw_gradient=lambda rank, step, p: {"rms": 0.01},
    ).facts()  # fmt: skip


def corrupted() -> Facts:
    def zeroed(rank: int, step: int, p: Parameter) -> Values:
        if rank == 1 and step == 32 and p.path == "head.weight":
            return {"rms": 0.0, "norm": 0.0, "fingerprint": 1, "zeros": 255}
        return {}

    later = only("head.weight", lambda rank, step, p: own_weight(rank, step, p) if step >= 32 else {})
    return replace(WRAPPED, gradient=zeroed, raw_gradient=zeroed, weight=later).facts()


def buffers_apart(broadcast: int = 0) -> Facts:
    return replace(
        WRAPPED, extra=wrapping(broadcast_buffers=broadcast),
        buffer=lambda rank, step, b: {"fingerprint": fingerprint(b.path, step, rank), "rms": 0.3 + 0.1 * rank},
    ).facts()  # fmt: skip


def clipped_in_part() -> Facts:
    return replace(WRAPPED, extra=both(wrapping(), clip(), outside("head.weight head.bias", 2, 3.0))).facts()


def clipped_scaled() -> Facts:
    extra = both(wrapping(), scaler(lambda step: 1024.0), factor(1024.0),
                 clip(norm=lambda rank: 512.0, scale=1024.0, scaled=1))  # fmt: skip
    return replace(WRAPPED, extra=extra).facts()


def collapsed() -> Facts:
    def scale(step: int) -> float:
        return 65536.0 if step <= 5 else 65536.0 / 2**30

    extra = both(wrapping(), scaler(scale, lambda step: 1 + 30 * (step == 5)))
    return replace(WRAPPED, extra=extra, loss=lambda rank, step: scale(step) * WRAPPED.loss(rank, step)).facts()


def accumulated(value: float | Callable[[int], float] = 1.0, **changes: object) -> Training:
    made = replace(WRAPPED, micro_batches=4, extra=both(wrapping(), factor(value, 4)))
    return replace(made, **changes)  # type: ignore[arg-type]  # fields of Training


def summed_in_forward() -> Training:
    def write(w: Writer, rank: int, step: int, t: int) -> None:
        if sampled(step) and step < 4:
            w.put(GradientSet, t, t, step, name="layers.0.weight layers.0.bias", count=2, of=7, what=SUMMED_TWICE)
            w.put(Call, t, t, step, name="_AllReduce.backward", count=1)
        w.put(Collective, t + MS, t + 2 * MS, step, name="allreduce", group="group:default", sequence=2 * step,
              elements=256, site=FORWARD_SITE)  # fmt: skip
        w.put(Collective, t + 8 * MS, t + 9 * MS, step, name="allreduce", group="group:default", sequence=2 * step + 1,
              elements=256, in_backward=1)  # fmt: skip

    return Training(wrapper="", optimizer="SGD", loss=lambda rank, step: 2.0 - step / 100,
                    extra=both(write, factor(1.0)))  # fmt: skip


def tensor_parallel() -> Facts:
    """Linear layers are split; norms and biases are replicas; the forward communicates."""
    split = ("embed.weight", "layers.0.weight", "head.weight")

    def differs(kind: str) -> Callable[[int, int, Parameter], Values]:
        return lambda rank, step, p: own(kind, rank, step, p) if p.path in split else {}

    def write(w: Writer, rank: int, step: int, t: int) -> None:
        w.put(Collective, t + MS, t + 2 * MS, step, name="allreduce", group="group:default", sequence=step,
              elements=256, site=FORWARD_SITE)  # fmt: skip

    return Training(
        wrapper="", gradient=differs("gradient"), raw_gradient=differs("gradient"), weight=differs("weight"),
        loss=lambda rank, step: 2.0 - step / 100, extra=write,
    ).facts()  # fmt: skip


def sharded() -> Facts:
    parameters = tuple(replace(p, placement="(Shard(dim=0),)") for p in PARAMETERS)
    return replace(WRAPPED, wrapper="FSDPNet", parameters=parameters, gradient=own_gradient, weight=own_weight,
                   raw_gradient=own_gradient, extra=reduces()).facts()  # fmt: skip


def sweep() -> Facts:
    """Ranks of a launcher that train alone."""
    return Training(wrapper="", gradient=own_gradient, raw_gradient=own_gradient, weight=own_weight).facts()


def local_sgd() -> Facts:
    return replace(MANUAL, gradient=own_gradient, weight=own_weight, extra=reduces(every=8)).facts()


def no_sync_but_for_the_last() -> Facts:
    def write(w: Writer, rank: int, step: int, t: int) -> None:
        for micro in range(3):
            w.put(Call, t + micro * MS, t + micro * MS, step, name="DistributedDataParallel.no_sync",
                  site=NO_SYNC_SITE, count=1)  # fmt: skip

    return accumulated(0.25, extra=both(wrapping(), factor(0.25, 4), write)).facts()


def two_lines() -> Facts:
    """A second backward of each step from another line: another loss, no micro-batch."""

    def write(w: Writer, rank: int, step: int, t: int) -> None:
        w.put(Forward, t, t + MS, step, name="Critic", elements=64, model="Critic", training=1, grad=1)
        w.put(Backward, t + MS, t + 2 * MS, step, site=f"{TRAIN}:52:main")

    return replace(WRAPPED, extra=both(wrapping(), factor(1.0), write)).facts()


FAULTS: dict[str, Callable[[], Facts]] = {
    "gradients-not-synchronised": bypassed,
    "gradients-double-reduced": doubled,
    "replicas-diverged": diverged,
    "buffers-not-synchronised": buffers_apart,
    "silent-corruption": corrupted,
    "clip-set-incomplete": clipped_in_part,
    "clip-before-unscale": clipped_scaled,
    "loss-scale-collapse": collapsed,
    "accumulation-not-normalised": accumulated().facts,
}
HEALTHY: dict[str, Callable[[], Facts]] = {
    "gradients averaged by hand": MANUAL.facts,
    "a wrapped model": WRAPPED.facts,
    "buffers that the wrapper copies": lambda: buffers_apart(broadcast=1),
    "a clipping of everything": replace(WRAPPED, extra=both(wrapping(), clip())).facts,
    "an unscaled clipping": replace(
        WRAPPED, extra=both(wrapping(), scaler(lambda step: 1024.0), factor(1024.0), clip())
    ).facts,
    "a scale that backs off at the start": replace(
        WRAPPED, extra=both(wrapping(), scaler(lambda step: 65536.0, lambda step: 5 if not step else 1))
    ).facts,
    "losses divided by the micro-batches": accumulated(0.25).facts,
    "no_sync but for the last": no_sync_but_for_the_last,
    "two losses": two_lines,
    "layers split over ranks": tensor_parallel,
    "sharded parameters": sharded,
    "a sweep": sweep,
    "parameters averaged now and then": local_sgd,
}
