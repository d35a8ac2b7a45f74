"""Made-up trainings whose model, optimizer, schedule or modes are wired wrongly, and healthy ones that look alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rankscope.analysis.facts import Facts
from rankscope.capture.sampling import Schedule
from rankscope.records.inventory import Group, Inventory, Model, Module, Optimizer, Parameter
from rankscope.records.loading import BatchWait
from rankscope.records.numerics import LossValue, WeightStat
from rankscope.records.training import Forward
from rankscope.records.training import Module as ModuleCall
from rankscope.records.wiring import (
    CUT_BY_CHECKPOINT,
    FREEZE_WITHOUT_EFFECT,
    LOADED,
    UNREGISTERED,
    Average,
    EvaluationPass,
    GradientReuse,
    OddPart,
    SchedulerStat,
)
from rankscope.testing.trainings import MS, PARAMETERS, SITE, Training, Values, fingerprint
from rankscope.testing.writer import Writer

Extra = Callable[[Writer, int, int, int], None]
STEPS = 70
FLAT: Final = lambda rank, step: 2.3  # noqa: E731  a loss that does not fall
EVALUATE = "/home/user/train.py:70:evaluate"
BLOCK = "/home/user/model.py:20:Net.forward"
MATRICES = ("embed.weight", "layers.0.weight", "head.weight")


def sampled(step: int) -> bool:
    """Whether the made-up ranks look at this step."""
    return Schedule(0.01).sampled(step)


def on_samples(put: Extra) -> Extra:
    """Writes something on each sampled step."""
    return lambda w, rank, step, t: put(w, rank, step, t) if sampled(step) else None


def odd(why: int, name: str, **fields: int | str) -> Extra:
    """Writes an odd part once."""

    def put(w: Writer, rank: int, step: int, t: int) -> None:
        if step == 0:
            values: dict[str, int | str] = {"model": "Net", "training": 1, "elements": 512, "parameters": 2, **fields}
            w.put(OddPart, t, t, 0, name=name, why=why, **values)

    return put


def part(paths: tuple[str, ...], **changes: object) -> tuple[Parameter, ...]:
    """The parameters of a made-up training, some of them changed."""
    return tuple(replace(p, **changes) if p.path in paths else p for p in PARAMETERS)  # type: ignore[arg-type]


# -- gradients ---------------------------------------------------------------------------------------------------


def reuse(reused: Callable[[int], int], **fields: int) -> Extra:
    """How many of two watched gradients were used again, by step."""

    def put(w: Writer, rank: int, step: int, t: int) -> None:
        if step:
            w.put(GradientReuse, t, t, step, name="AdamW", site=SITE, watched=2, reused=reused(step), optimizer=1,
                  **fields)  # fmt: skip

    return on_samples(put)


def missing_zero_grad() -> Facts:
    """Nobody clears the gradients: they are used again at each step."""
    return Training(extra=reuse(lambda step: 2)).facts()


# -- what learns -------------------------------------------------------------------------------------------------


def frozen_parameters() -> Facts:
    """All matrices are frozen, biases and norms train, the loss stays where it is."""
    return Training(parameters=part(MATRICES, trainable=False), loss=FLAT).facts()


def cut_off(grad: int = 1, loaded: int = 0) -> Facts:
    """No gradient comes to the embedding and the first layer, which were called with autograd on, or off."""
    cut = ("embed.weight", "layers.0.weight", "layers.0.bias")

    def weight(rank: int, step: int, p: Parameter) -> Values:
        same = {"update": 0.0, "changed": 0, "gradient": 0, "fingerprint": fingerprint("weight", p.path)}
        return same if p.path in cut else {"gradient": 1}

    def extra(w: Writer, rank: int, step: int, t: int) -> None:
        if step < 4:
            for path in ("embed", "layers.0", "norm", "head"):
                w.put(ModuleCall, t, t + MS, step, name=path, numel=64, leaf=1, grad=grad, training=1)
        if loaded:
            odd(LOADED, "Net", elements=loaded)(w, rank, step, t)

    return Training(weight=weight, extra=extra).facts()


def unregistered(**fields: int) -> Facts:
    """Four modules in a plain list."""
    values = {"elements": 2048, "parameters": 8, "held": 0, **fields}
    return Training(extra=odd(UNREGISTERED, "layers", place="Linear", **values)).facts()


def idle_freeze(parameters: tuple[Parameter, ...] = PARAMETERS) -> Facts:
    """A class freezes its layers in train(), and none is frozen."""
    put = odd(FREEZE_WITHOUT_EFFECT, "layers", place="/home/user/model.py:31:Backbone.train")
    return Training(parameters=parameters, extra=put).facts()


def frozen_later(fresh: bool = False) -> Facts:
    """The head is frozen after step 4 but keeps a gradient, the same one, or new ones that a GAN gives it."""

    def gradient(rank: int, step: int, p: Parameter) -> Values:
        old = p.path == "head.weight" and step > 4 and not fresh
        return {"fingerprint": 7} if old else {}

    training = Training(gradient=gradient, weight=lambda rank, step, p: {"gradient": 1})
    tables = training.tables()
    now = part(("head.weight",), trainable=False)
    later = {}
    for pid, (first,) in tables.inventories.items():
        model = replace(first.models[0], parameters=now)
        later[pid] = (first, replace(first, step=4, models=(model,)))
    return Facts(replace(tables, inventories=later))


# -- what the optimizer does -------------------------------------------------------------------------------------


def stale(gradient: int = 0, followed: bool = False) -> Facts:
    """The optimizer holds seven tensors from before sharding; the model's own parameters are held by nobody."""
    shapes = tuple(p.shape for p in PARAMETERS[:4])

    def inventory(stock: Inventory) -> Inventory:
        group = Group(1e-3, 0.01, len(PARAMETERS), len(PARAMETERS), shapes)
        return replace(stock, optimizers=(Optimizer(1, "AdamW", (group,)),))

    def weight(rank: int, step: int, p: Parameter) -> Values:
        return {"update": 1e-3, "changed": 255, "fingerprint": fingerprint(p.path, step)} if followed else {}

    def foreign(w: Writer, rank: int, step: int, t: int) -> None:
        for place in range(len(PARAMETERS)):
            w.put(WeightStat, t, t, step, name=f"AdamW#1.groups[0].params[{place}]", rms=0.1, fingerprint=place + 1,
                  finite=1, held=1, compared=1, gradient=gradient)  # fmt: skip

    held_by_none = tuple(replace(p, group="") for p in PARAMETERS)
    return Training(parameters=held_by_none, inventory=inventory, weight=weight, extra=on_samples(foreign)).facts()


def added_later() -> Facts:
    """A layer that came into the model after step 0, and into no optimizer."""
    tables = Training(parameters=(*PARAMETERS, Parameter("extra.weight", (4, 4), "float32", True, "Linear"))).tables()
    later = {}
    for pid, (first,) in tables.inventories.items():
        model = replace(first.models[0], parameters=PARAMETERS)
        later[pid] = (replace(first, models=(model,)), replace(first, step=2))
    return Facts(replace(tables, inventories=later))


def skips(since: int, paths: tuple[str, ...] = ("embed.weight", "layers.0.weight"), **fields: float) -> Facts:
    """From a step on some parameters do not change, whatever their gradients are."""

    def weight(rank: int, step: int, p: Parameter) -> Values:
        if p.path not in paths or step < since:
            return {"gradient": 1}
        same = fingerprint("weight", p.path, since - 1)
        return {"gradient": 1, "update": 0.0, "changed": 0, "fingerprint": same, **fields}

    return Training(weight=weight).facts()


# -- modes -------------------------------------------------------------------------------------------------------

LAYERS = (Module("", "Net", True, 0), Module("drop", "Dropout", True, 0), Module("layers.0", "Linear", True, 2))


def with_layers(stock: Inventory) -> Inventory:
    """The inventory of a model that has dropout."""
    model = stock.models[0]
    return replace(stock, models=(replace(model, modules=LAYERS), *stock.models[1:]))


def eval_mode(since: int, until: int = STEPS, inventory: Callable[[Inventory], Inventory] = with_layers) -> Facts:
    """After an evaluation the model stays in evaluation mode."""
    tables = Training(inventory=inventory).tables()
    rows = tables.rows[Forward.code].copy()
    off = (rows["step"] >= since) & (rows["step"] < until)
    rows["c"][off] &= ~(1 << 32)
    return Facts(replace(tables, rows={**tables.rows, Forward.code: rows}))


def evaluations(every: int = 10, site: str = EVALUATE, loader: int = 0, **fields: int | str) -> Facts:
    """Passes without gradients each few steps, from one function and one loader."""

    def extra(w: Writer, rank: int, step: int, t: int) -> None:
        w.put(BatchWait, t - 3 * MS, t - 2 * MS, step, name="Data", loader=1, ordinal=step)
        if step % every or not step:
            return
        for number in range(3):
            at = t - 9 * MS + number * MS
            if loader:
                w.put(BatchWait, at, at + MS // 4, step, name="Held", loader=loader, ordinal=number)
            w.put(Forward, at + MS // 2, at + MS, step, name="Net", elements=512, model="Net", trained=1,
                  training=fields.get("training", 0))  # fmt: skip
            values = {"model": "Net", "site": site, "number": 3 * (step // every) + number, **fields}
            w.put(EvaluationPass, at + MS // 2, at + MS // 2, step, **values)

    return Training(extra=extra, inventory=with_layers).facts()


# -- schedules and copies ----------------------------------------------------------------------------------------


def schedule(ratio: int, horizon: int = 0, kind: str = "CosineAnnealingLR", micro_batches: int = 1,
             lr: Callable[[int], float] = lambda step: 1e-3 * (1 - step / 140), **fields: int) -> Facts:  # fmt: skip
    """A schedule that steps so many times for each step of the optimizer."""

    def put(w: Writer, rank: int, step: int, t: int) -> None:
        w.put(SchedulerStat, t, t, step, name=kind, scheduled=ratio * step, stepped=step, horizon=horizon, number=1,
              optimizer=1, **fields)  # fmt: skip

    return Training(extra=on_samples(put), micro_batches=micro_batches, lr=lr).facts()


def without_rate(since: int) -> Facts:
    """The rate is zero from a step on, and nothing changes any more."""

    def weight(rank: int, step: int, p: Parameter) -> Values:
        same = {"update": 0.0, "changed": 0, "fingerprint": fingerprint("weight", p.path, since)}
        return same if step >= since else {}

    return Training(lr=lambda step: max(0.0, 1e-3 * (1 - step / since)), weight=weight).facts()


def decay_on_norms(bad: tuple[str, ...], spared: tuple[str, ...]) -> Facts:
    """Some parameters are in the group with decay, some in the one without."""
    groups = {**dict.fromkeys(bad, "1.0"), **dict.fromkeys(spared, "1.1")}
    parameters = tuple(replace(p, group=groups.get(p.path, "1.0")) for p in PARAMETERS)
    return Training(parameters=parameters, weight_decay=(0.3, 0.0)).facts()


def untied(head: str = "Linear", equal: bool = True) -> Facts:
    """An output layer with the shape of the embedding; it began with the same values, or with its own."""
    parameters = (*PARAMETERS, Parameter("out.weight", (100, 16), "float32", True, head, "1.0", storage=7))

    def weight(rank: int, step: int, p: Parameter) -> Values:
        sizes = {"embed.weight": 0.125, "out.weight": 0.125 if equal else 0.25}
        return {"rms": sizes[p.path]} if step == 0 and p.path in sizes else {}

    return Training(parameters=parameters, weight=weight).facts()


def average_of(name: str, kind: str, moves: bool = False, waits: int = 0) -> Extra:
    """Looks at an average of the weights that follows them, or does not."""

    def put(w: Writer, rank: int, step: int, t: int) -> None:
        print = fingerprint("average", step if moves else 0)
        w.put(Average, t, t, step, name=name, tensors=7, fingerprint=print, class_name=kind, waits=waits)

    return on_samples(put)


def averages(moves: bool, name: str = "ema", kind: str = "EMA", waits: int = 0) -> Facts:
    """A training with an average."""
    return Training(extra=average_of(name, kind, moves, waits)).facts()


def teacher_in_evaluation_mode() -> Facts:
    """A second model that gives targets: in evaluation mode, with autograd on, and it never changes."""

    def inventory(stock: Inventory) -> Inventory:
        parameters = tuple(replace(p, group="") for p in PARAMETERS)
        return replace(stock, models=(*stock.models, Model("Net#1", "", parameters, LAYERS)))

    def extra(w: Writer, rank: int, step: int, t: int) -> None:
        w.put(Forward, t, t + MS // 4, step, name="Net", elements=512, model="Net#1", training=step < 3, grad=1)
        if sampled(step):
            for p in PARAMETERS:
                w.put(WeightStat, t, t, step, name=p.path, model="Net#1", rms=0.1, fingerprint=3, finite=1, compared=1)

    return Training(inventory=inventory, extra=extra).facts()


def losses_of_two_backwards() -> Facts:
    """A loss that is split over two backward calls, whose optimizer clears between its steps."""
    second = LossValue

    def extra(w: Writer, rank: int, step: int, t: int) -> None:
        w.put(second, t + MS, t + MS, step, name=SITE, value=0.5, micro_batch=1)
        reuse(lambda step: 0)(w, rank, step, t)

    return Training(extra=extra).facts()


FAULTS: Final[dict[str, Callable[[], Facts]]] = {
    "missing-zero-grad": missing_zero_grad,
    "frozen-parameters": frozen_parameters,
    "unintended-trainable": idle_freeze,
    "optimizer-stale-parameters": stale,
    "optimizer-skips-parameters": lambda: skips(2),
    "unregistered-modules": unregistered,
    "eval-mode-in-training": lambda: eval_mode(40),
    "dropout-in-evaluation": lambda: evaluations(training=1, random=1, dropouts=2),
    "checkpointing-cuts-gradient": lambda: Training(extra=odd(CUT_BY_CHECKPOINT, "layers.3", place=BLOCK)).facts(),
    "scheduler-overstepped": lambda: schedule(2, horizon=70),
    "weight-decay-on-norm": lambda: decay_on_norms(
        ("norm.weight", "norm.bias"), ("layers.0.bias", "head.bias")
    ),
    "tied-weights-broken": untied,
    "ema-not-updating": lambda: averages(moves=False),
}

HEALTHY: Final[dict[str, Callable[[], Facts]]] = {
    "gradients are cleared": lambda: Training(extra=reuse(lambda step: 0)).facts(),
    "two backward calls and a clearing": losses_of_two_backwards,
    "a frozen backbone and a head that trains": lambda: Training(
        parameters=part(("embed.weight", "layers.0.weight", "layers.0.bias"), trainable=False, group="")
    ).facts(),
    "an encoder without autograd": lambda: cut_off(grad=0),
    "a teacher in a list": lambda: unregistered(training=0),
    "master weights": lambda: stale(followed=True),
    "an image is optimised": lambda: stale(gradient=1),
    "a teacher in evaluation mode": teacher_in_evaluation_mode,
    "evaluation in evaluation mode": lambda: evaluations(loader=2),
    "a generator without gradients in training": lambda: evaluations(
        every=1, site=SITE, training=1, random=1, dropouts=2
    ),
    "a schedule in micro-batches": lambda: schedule(2, kind="StepLR", micro_batches=2),
    "no decay for biases and norms": lambda: decay_on_norms(
        (), ("norm.weight", "norm.bias", "layers.0.bias", "head.bias")
    ),
    "an output layer of its own": lambda: untied(equal=False),
    "an average that follows": lambda: averages(moves=True),
    "an average that begins late": lambda: averages(moves=False, waits=1000),
}
