"""Made-up trainings with faults in what their batches hold and what goes into their losses, and healthy ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from rankscope.analysis.facts import Facts
from rankscope.capture.sampling import Schedule
from rankscope.records.activations import ActivationStat
from rankscope.records.batch_contents import (
    FROM_LOADER,
    GROWN,
    INTO_LAYER,
    INTO_MODEL,
    PLAIN,
    PROBABILITIES,
    BatchTensor,
    FeatureRange,
    IndexFailure,
    LossCall,
    TokenLag,
)
from rankscope.records.loading import BatchWait, Fetch
from rankscope.records.record import Record
from rankscope.records.training import Forward
from rankscope.testing.stops import BACKWARD, CLOSED, STEPS, ranks, stopped
from rankscope.testing.trainings import MS, SITE, Training
from rankscope.testing.writer import Writer

LOSS_SITE = "/home/user/train.py:38:main"
EMBED_SITE = "/home/user/model.py:12:Net.forward"
_SCHEDULE = Schedule(0.01)

Fields = Mapping[str, float | str]
Extra = Callable[[Writer, int, int, int], None]
"""As `Training.extra`: (writer, rank, step, when the step begins)."""


def sampled(step: int) -> bool:
    """Whether a made-up training samples a step."""
    return _SCHEDULE.sampled(step)


def wave(step: int, rank: int = 0) -> float:
    """Noise from -1 to 1, another one for each step and rank."""
    return math.sin(7.3 * step + 2.1 * rank)


def several(*parts: Extra) -> Extra:
    """All of them."""

    def extra(w: Writer, rank: int, step: int, at: int) -> None:
        for part in parts:
            part(w, rank, step, at)

    return extra


def loader_batch(**fields: float | str) -> Extra:
    """An image batch and its labels of each sampled step, as the loader gave them."""

    def extra(w: Writer, rank: int, step: int, at: int) -> None:
        w.put(BatchWait, at, at + MS // 10, step, name="Images", ordinal=step, loader=1, grad=1)
        w.put(Fetch, at, at + MS // 20, step, name="Images", samples=32)
        if sampled(step):
            put_tensor(w, rank, step, at, {"loader": 1, "source": "Images", "grad": 1, **fields})
            labels: Fields = {
                "name": "batch[1]", "shape": "int64[32]", "mean": 4.5, "std": 2.9, "least": 0, "most": 9, "zeros": 25,
                "integral": 1, "loader": 1, "source": "Images", "grad": 1,
            }  # fmt: skip
            w.put(BatchTensor, at, at, step, **labels)

    return extra


def put_tensor(w: Writer, rank: int, step: int, at: int, fields: Fields) -> None:
    """One normalised image batch, with some noise; `fields`: what is different."""
    values: dict[str, float | str] = {
        "name": "batch[0]", "shape": "float32[32, 3, 8, 8]", "mean": 0.02 * wave(step, rank),
        "std": 1.0 + 0.03 * wave(step, rank), "least": -2.1, "most": 2.6, "origin": FROM_LOADER, "training": 1,
        "source": "Net", "grad": 1, **fields,
    }  # fmt: skip
    w.put(BatchTensor, at, at, step, **values)


def first_layer(kind_after: str = "ReLU", rms: float = 0.6, **fields: float | str) -> Extra:
    """The input of the first layer, and what ran in the model."""

    def extra(w: Writer, rank: int, step: int, at: int) -> None:
        if not sampled(step):
            return
        put_tensor(w, rank, step, at + MS, {"name": "layers.0", "shape": "float32[32, 192]", "origin": INTO_LAYER,
                                            **fields})  # fmt: skip
        for name, kind in (("layers.0", "Linear"), ("layers.1", kind_after)):
            w.put(ActivationStat, at + MS, at + MS, step, name=name, model="Net", class_name=kind, rms=rms, finite=1,
                  training=1, grad=1)  # fmt: skip

    return extra


def evaluations(every: int = 10, **fields: float | str) -> Extra:
    """A pass over another loader after each tenth step."""

    def extra(w: Writer, rank: int, step: int, at: int) -> None:
        if step % every or not step:
            return
        for i in range(2):
            begin = at + (i + 1) * MS // 10
            w.put(BatchWait, begin, begin, step, name="Images", ordinal=i, loader=2)
            common: Fields = {"training": 0, "grad": 0, **fields}
            if i == 0 or sampled(step):
                put_tensor(w, rank, step, begin + 1, {"source": "Images", "loader": 2, **common})
                put_tensor(w, rank, step, begin + 2, {"name": "input[0]", "origin": INTO_MODEL, **common})
            w.put(Forward, begin + 2, begin + 3, step, name="Net", model="Net", elements=512)

    return extra


def model_input(**fields: float | str) -> Extra:
    """What goes into the model on each sampled step."""

    def extra(w: Writer, rank: int, step: int, at: int) -> None:
        if sampled(step):
            put_tensor(w, rank, step, at + MS, {"name": "input[0]", "origin": INTO_MODEL, **fields})

    return extra


def loss(function: str = "cross_entropy", **fields: float | str) -> Extra:
    """A call of a loss function on each sampled step: logits against ten classes, unless told otherwise."""

    def extra(w: Writer, rank: int, step: int, at: int) -> None:
        if sampled(step):
            values: dict[str, float | str] = {
                "name": LOSS_SITE, "function": function, "shape": "[32, 10] against [32]", "classes": 10,
                "rows": PLAIN, "grad": 1, "indices": 1, "known": 1, "least": -3.0, "most": 3.5 + wave(step, rank),
                "least_target": 0, "most_target": 9, **fields,
            }  # fmt: skip
            w.put(LossCall, at + 5 * MS, at + 5 * MS, step, **values)

    return extra


def lags(causal: int = 1, site: str = LOSS_SITE, **shares: int) -> Extra:
    """Where targets stand in the tokens, in 255ths; by chance 10 everywhere."""

    def extra(w: Writer, rank: int, step: int, at: int) -> None:
        if sampled(step):
            places: dict[str, int] = dict.fromkeys(("before", "same", "next", "second", "third"), 10)
            w.put(TokenLag, at + 5 * MS, at + 5 * MS, step, name=site, function="cross_entropy", compared=480,
                  causal=causal, **{**places, **shares})  # fmt: skip

    return extra


def table(**fields: float | str) -> Extra:
    """A table of 13 dense features."""

    def extra(w: Writer, rank: int, step: int, at: int) -> None:
        if sampled(step):
            values: dict[str, float | str] = {
                "name": "batch[0]", "source": "Houses", "loader": 1, "features": 13, "samples": 32 * (step + 1),
                "batches": min(step + 1, 8), **fields,
            }  # fmt: skip
            w.put(FeatureRange, at, at, step, **values)

    return extra


def training(*parts: Extra) -> Callable[[], Facts]:
    """A training with further records."""
    return Training(extra=several(*parts)).facts


def raising(exception: str, place: str, kind: type[Record], **fields: float | str) -> Callable[[], Facts]:
    """Two ranks that train 40 steps, then rank 1 raises just after it has written a record; its peer loses it."""

    def facts() -> Facts:
        first, second = ranks(2)
        first.call("allreduce", BACKWARD)
        first.stand(0.5, BACKWARD)
        second.batch()
        second.writer.put(kind, second.now, second.now, STEPS, **fields)
        second.now += MS
        ends = [second.end(code=1, exception=exception, place=place),
                first.end(code=1, exception=CLOSED, place=BACKWARD)]  # fmt: skip
        return stopped((first, second), ends)

    return facts


HEALTHY_PARTS: Final = (loader_batch(), model_input(), first_layer(), evaluations(), loss(), lags(next=255))

FAULTS: dict[str, Callable[[], Facts]] = {
    "double-softmax": training(loader_batch(), loss(rows=PROBABILITIES, after_softmax=1, least=0.0, most=0.8)),
    "index-out-of-range": raising(
        "IndexError: index out of range in self", EMBED_SITE, IndexFailure, name=EMBED_SITE, function="embedding",
        table="Net.embed.weight", value=512, size=512, wrong=1, sample=3,
    ),
    "batch-shape-mismatch": training(
        loader_batch(),
        loss("mse_loss", shape="[32, 1] against [32]", classes=0, rows=0, indices=0, broadcast=GROWN),
    ),
    "input-scale": training(
        loader_batch(integral=1, mean=118.0, std=61.0, least=0, most=255),
        first_layer(integral=1, mean=118.0, std=61.0, least=0, most=255, rms=80.0), loss(),
    ),
    "train-eval-mismatch": training(
        loader_batch(), model_input(), loss(),
        evaluations(mean=0.45, std=0.25, least=0.0, most=1.0),
    ),
    "label-misalignment": training(loss(), lags(second=252)),
    "constant-features": training(table(constant=1, first=4, value=-1.0), loss()),
}  # fmt: skip
"""Cause -> a training with that fault."""

HEALTHY: dict[str, Callable[[], Facts]] = {
    "images, evaluated now and then": training(*HEALTHY_PARTS),
    "pixels up to 255, and a normalisation first": training(
        loader_batch(integral=1, mean=118.0, std=61.0, least=0, most=255),
        first_layer("BatchNorm2d", integral=1, mean=118.0, std=61.0, least=0, most=255), loss(),
    ),
    "augmented training images": training(
        loader_batch(), model_input(), evaluations(mean=-0.1, std=0.8, least=-2.1, most=2.6), loss()
    ),
    "log-probabilities where logits are wanted": training(loss(rows=3, most=0.0)),
    "a metric on probabilities": training(loss(), loss(name=SITE, rows=PROBABILITIES, grad=0)),
    "heads for two future tokens": training(lags(next=255), lags(site=SITE, second=253)),
    "a masked language model": training(lags(causal=0, same=255)),
    "words counted": training(table(constant=3, first=2, value=0.0, zeros=240)),
    "an intercept among the features": training(table(constant=1, first=0, value=1.0)),
}  # fmt: skip
"""Name -> a training with nothing wrong."""
