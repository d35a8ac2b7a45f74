"""Made-up trainings in which a value is no finite number any more."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rankscope.analysis.facts import Facts
from rankscope.records.loading import BatchWait, Fetch
from rankscope.records.not_finite import BATCH, GRADIENT, NOTHING_TO_LEARN, OPERATION, NotFinite
from rankscope.testing.trainings import MS, SITE, Training
from rankscope.testing.writer import Writer

LOST_AT: Final = 20


def lost(origin: int, what: str, *, rank: int | None = 1, module: str = "", detail: str = "", lasts: bool = True,
         step: int = LOST_AT) -> Training:  # fmt: skip
    """A loss that is lost at a step; `rank` None: on all ranks. `lasts`: every loss after it is lost too."""

    def extra(w: Writer, of_rank: int, of_step: int, begin_ns: int) -> None:
        w.put(BatchWait, begin_ns, begin_ns + MS, of_step, name="Photos", ordinal=of_step, loader=1, grad=1)
        w.put(Fetch, begin_ns, begin_ns + MS // 2, of_step, name="Photos", samples=8, first_index=8 * of_step)
        if of_step == step and rank in (None, of_rank):
            w.put(
                NotFinite, begin_ns + 5 * MS, begin_ns + 5 * MS, of_step, name=what, low=0.0, high=1.0, module=module,
                site=SITE, detail=detail, origin=origin, ordinal=of_step, loaded=1, parameters=7,
                affected=2 if lasts and origin == GRADIENT else 0,
            )  # fmt: skip

    def loss(of_rank: int, of_step: int) -> float:
        if origin == GRADIENT or rank not in (None, of_rank):
            return 0.5
        gone = of_step >= step if lasts else of_step == step
        return math.nan if gone else 0.5

    return Training(loss=loss, extra=extra)


def lost_gradient(skipped: bool = False) -> Training:
    """Gradients that are not finite though the loss is; `skipped`: the optimizer never gets them."""
    training = lost(GRADIENT, "sqrt", rank=None, module="layers.0.weight", step=2)
    return training if skipped else replace(
        training, gradient=lambda rank, step, p: {"finite": 0} if step == 2 and p.path.startswith("layers") else {}
    )  # fmt: skip


FAULTS: Final[dict[str, Callable[[], Facts]]] = {
    "nan-from-data": lambda: lost(BATCH, "image", detail="3 of 4096 values").facts(),
    "nan-from-operation": lambda: lost(
        OPERATION, "log", rank=None, module="head.bias", detail="the logarithm of 2 of 80 values that are not positive"
    ).facts(),
}
HEALTHY: Final[dict[str, Callable[[], Facts]]] = {
    "gradients that overflow and are skipped": lambda: lost_gradient(skipped=True).facts(),
}
EMPTY_BATCH: Final = lost(NOTHING_TO_LEARN, "nllloss", detail="every target of the batch is ignored", lasts=False)
