"""Made-up runs by name: for each cause at least one run with that fault and the same run without it, and healthy ones.

A new detector should fire on its own run, and on none of these.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from rankscope.testing import places
from rankscope.testing.host import Host, Stranger
from rankscope.testing.loader import Loader
from rankscope.testing.parts import (
    Code,
    CommunicationHook,
    Compile,
    Deep,
    DeviceReads,
    Evaluate,
    Exchange,
    GcPause,
    Initialise,
    Reduce,
    Save,
)
from rankscope.testing.runs import MadeUpRun, Model, RunBuilder
from rankscope.testing.simulation import ASLEEP, NATIVE


@dataclass(frozen=True, slots=True)
class Fault:
    """A run with one fault, and the same run without it."""

    cause: str
    run: RunBuilder
    repaired: RunBuilder


BASE: Final = RunBuilder()
SINGLE: Final = replace(BASE, ranks=1)
FOUR: Final = replace(BASE, ranks=4)


def slower(factors: Mapping[int, float]) -> RunBuilder:
    """The usual run with all compute phases of some ranks longer by a factor."""
    return replace(
        BASE,
        forward_ms={r: 15.0 * f for r, f in factors.items()},
        backward_ms={r: 30.0 * f for r, f in factors.items()},
        optimizer_ms={r: 4.0 * f for r, f in factors.items()},
    )


def tokens(rank: int, step: int) -> float:
    """Input elements that differ by rank and step, from half to one and a half of the usual."""
    return random.Random(f"{rank}/{step}").randrange(2048, 6144)


def even_tokens(rank: int, step: int) -> float:
    """The mean of both ranks at that step."""
    return (tokens(0, step) + tokens(1, step)) / 2


def _by_tokens(amount: Callable[[int, int], float]) -> RunBuilder:
    return replace(
        BASE,
        elements=amount,
        forward_ms=lambda r, s: 15 * amount(r, s) / 4096,
        backward_ms=lambda r, s: 30 * amount(r, s) / 4096,
    )


def _longer_on_rank_1(factor: float) -> RunBuilder:
    run = slower({1: factor})
    return replace(run, elements={1: 4096 * factor})


def _accumulation(no_sync: bool) -> RunBuilder:
    return replace(
        BASE, micro_batches=4, no_sync=no_sync, forward_ms=4.0, backward_ms=8.0, transfer_ms=6.0, loader=Loader(0.2)
    )


_COMPILED_FIRST = Compile(reason="", ms=800.0, when=lambda r, s: s == 0)
_DEEP = tuple(
    Deep(path=f"layers.{i}", ms=1.0, subnormal=0.0, when=lambda r, s: s < 3, autocast=1, full_precision=0)
    for i in range(4)
)
_CUSTOM = f"ScaledLinear|{places.MODEL}:60"

FAULTS: Final[dict[str, Fault]] = {
    "slow transform on the rank itself": Fault("slow-data-loading", replace(BASE, loader=Loader(25.3)), BASE),
    "slow transform on rank 1": Fault(
        "slow-data-loading", replace(BASE, loader=Loader(lambda r, b: 15.3 if r == 1 else 0.3)), BASE
    ),
    "too few workers": Fault(
        "slow-data-loading",
        replace(BASE, loader=Loader(150.0, workers=2)),
        replace(BASE, loader=Loader(40.0, workers=2)),
    ),
    "workers read from a slow disk": Fault(
        "slow-storage",
        replace(
            BASE, loader=Loader(150.0, workers=2, cpu_share=0.05, place=f"{places.DATA}:52:ShardReader.read_sample")
        ),
        replace(
            BASE, loader=Loader(40.0, workers=2, cpu_share=0.05, place=f"{places.DATA}:52:ShardReader.read_sample")
        ),
    ),
    "rank reads from a slow disk": Fault(
        "slow-storage",
        replace(BASE, loader=Loader(20.3, cpu_share=0.04, place=f"{places.DATA}:52:ShardReader.read_sample")),
        replace(BASE, loader=Loader(0.3, cpu_share=0.04, place=f"{places.DATA}:52:ShardReader.read_sample")),
    ),
    "workers start anew each epoch": Fault(
        "loader-worker-restart",
        replace(BASE, loader=Loader(10.0, workers=2, epoch=10, worker_start_ms=400.0)),
        replace(BASE, loader=Loader(10.0, workers=2, epoch=10, worker_start_ms=400.0, persistent=True)),
    ),
    "workers on one core": Fault(
        "worker-affinity",
        replace(BASE, loader=Loader(300.0, workers=4, affinity=(0,))),
        replace(BASE, loader=Loader(80.0, workers=4)),
    ),
    "more threads than cores": Fault(
        "thread-oversubscription",
        replace(
            slower({0: 1.6, 1: 1.6}),
            compute_cpu=1 / 1.6,
            torch_threads=8,
            host=Host(run_delay=0.25, all_threads_delay=2.4, cpu=4.0),
        ),
        BASE,
    ),
    "a neighbour on rank 1's cores": Fault(
        "cpu-contention",
        replace(
            slower({1: 1.5}),
            compute_cpu={1: 1 / 1.5},
            host=Host(
                run_delay={1: 0.33},
                all_threads_delay={1: 0.33},
                strangers=(Stranger("stress-ng", 1.2),),
            ),
        ),
        BASE,
    ),
    "a quota holds rank 1": Fault(
        "cpu-throttling", replace(slower({1: 1.6}), compute_cpu={1: 1 / 1.6}, host=Host(throttled={1: 0.375})), BASE
    ),
    "rank 1 stopped now and then": Fault(
        "cpu-throttling",
        replace(
            slower({1: 2.0}), compute_cpu={1: 0.5}, host=Host(throttled=None, stopped=lambda r, n: r == 1 and n % 2)
        ),
        BASE,
    ),
    "slow device": Fault("slow-device", slower({1: 1.4}), BASE),
    "slow device among four": Fault("slow-device", replace(slower({2: 1.4}), ranks=4), FOUR),
    "uneven batches, moving": Fault("uneven-work", _by_tokens(tokens), _by_tokens(even_tokens)),
    "longer batches on rank 1": Fault("uneven-work", _longer_on_rank_1(1.4), slower({0: 1.2, 1: 1.2})),
    "slow function on rank 1": Fault("slow-code", replace(BASE, parts=(Code(ms=15.0, ranks=(1,)),)), BASE),
    "slow function everywhere": Fault("slow-code", replace(BASE, parts=(Code(ms=15.0),)), BASE),
    "sleep inside forward on rank 1": Fault(
        "slow-code",
        replace(
            BASE, parts=(Code(ms=80.0, ranks=(1,), at="in-forward", state=ASLEEP, place=f"{places.MODEL}:33:Net.wait"),)
        ),
        BASE,
    ),
    "slow gradient hook": Fault(
        "slow-code",
        replace(BASE, parts=(Code(ms=12.0, at="in-backward", place=f"{places.TRAIN}:25:gradient_hook"),)),
        BASE,
    ),
    "numpy between phases": Fault(
        "slow-code",
        replace(BASE, parts=(Code(ms=15.0, ranks=(0,), state=NATIVE, place=f"{places.TRAIN}:55:smooth"),)),
        BASE,
    ),
    "staggered garbage collections": Fault(
        "gc-pause",
        replace(BASE, parts=(GcPause(ms=120.0, when=lambda r, s: (s + 5 * r) % 10 == 3),)),
        BASE,
    ),
    "garbage collections on rank 1": Fault(
        "gc-pause", replace(BASE, parts=(GcPause(ms=120.0, every=10, ranks=(1,), at="after-step"),)), BASE
    ),
    "device values read all the time": Fault(
        "host-sync",
        replace(BASE, cuda_devices=1, parts=(DeviceReads(count=4, ms=2.5),)),
        replace(BASE, cuda_devices=1),
    ),
    "metrics reduced one by one": Fault(
        "tiny-collectives",
        replace(BASE, parts=(Reduce(calls=20, transfer_ms=0.6),)),
        replace(BASE, parts=(Reduce(calls=1, transfer_ms=0.6),)),
    ),
    "accumulation without no_sync": Fault("missing-no-sync", _accumulation(False), _accumulation(True)),
    "slow network": Fault(
        "communication-bound",
        replace(BASE, transfer_ms=70.8, parts=(Reduce(transfer_ms=0.3),)),
        replace(BASE, parts=(Reduce(transfer_ms=0.3),)),
    ),
    "slow path of rank 1": Fault("slow-link", replace(BASE, transfer_ms={1: 15.8}), BASE),
    "slow path in a hook of rank 1": Fault(
        "slow-link",
        replace(BASE, hook=CommunicationHook(ms={1: 45.0})),
        replace(BASE, hook=CommunicationHook(ms={})),
    ),
    "slow path of rank 1, seen by its queue": Fault(
        "slow-link",
        replace(
            BASE,
            transfer_ms=lambda r, s: 25.8 if s % 2 else 5.8,
            host=Host(send_queue_bytes=lambda r, n: 200_000 if r == 1 and n % 3 else 0),
        ),
        replace(BASE, transfer_ms=5.8),
    ),
    "checkpoints on rank 0": Fault(
        "checkpoint-stall", replace(BASE, parts=(Save(ms=300.0, flush_ms=200.0, every=20, offset=4, ranks=(0,)),)), BASE
    ),
    "checkpoints with a barrier": Fault(
        "checkpoint-stall",
        replace(BASE, parts=(Save(ms=500.0, every=20, offset=4, savers=(0,), barrier_ms=0.3),)),
        replace(BASE, parts=(Save(ms=0.0, every=20, offset=4, savers=(0,), barrier_ms=0.3),)),
    ),
    "evaluation on rank 0": Fault(
        "evaluation-stall",
        replace(BASE, parts=(Evaluate(batches=40, metric_ms=100.0, every=20, offset=4, ranks=(0,)),)),
        BASE,
    ),
    "histograms on rank 0": Fault(
        "logging-stall",
        replace(
            BASE, parts=(Code(ms=80.0, every=5, ranks=(0,), state=NATIVE, place=f"{places.TRAIN}:52:log_histograms"),)
        ),
        BASE,
    ),
    "a tracker that uploads": Fault(
        "logging-stall",
        replace(
            BASE,
            parts=(
                Code(
                    ms=60.0,
                    state=ASLEEP,
                    place=f"{places.TRAIN}:53:publish",
                    below=("/home/user/venv/lib/python3.11/site-packages/wandb/sdk/wandb_run.py:1800:Run.log",),
                ),
            ),
        ),
        BASE,
    ),
    "recompiled for every length": Fault(
        "recompilation",
        replace(BASE, parts=(_COMPILED_FIRST, Compile(every=10, offset=10))),
        replace(BASE, parts=(_COMPILED_FIRST,)),
    ),
    "a layer outside of autocast": Fault(
        "autocast-inactive",
        replace(
            BASE,
            parts=(
                *_DEEP[:1],
                *(replace(d, class_name=_CUSTOM, full_precision=1) for d in _DEEP[1:]),
            ),
        ),
        replace(BASE, parts=_DEEP),
    ),
    "subnormal weights": Fault(
        "denormals",
        replace(BASE, parts=(*_DEEP[:3], replace(_DEEP[3], ms=7.0, subnormal=0.4))),
        replace(BASE, parts=_DEEP),
    ),
    "weights initialised ten times": Fault(
        "slow-start",
        replace(BASE, parts=(Initialise(ms=5000.0, repeated=0.9, count=400),)),
        replace(BASE, parts=(Initialise(ms=500.0),)),
    ),
    "a start that indexes": Fault(
        "slow-start",
        replace(
            BASE, parts=(Code(at="start", ms=6000.0, place=f"{places.DATA}:80:build_index", line=places.SETUP_LINE),)
        ),
        BASE,
    ),
}
"""Name -> a run with one fault."""

_GAN: Final = (
    Model("Critic", forward_ms=8.0, backward_ms=12.0, optimizer_ms=2.0),
    Model("Painter", forward_ms=10.0, backward_ms=14.0, optimizer_ms=2.0),
)

HEALTHY: Final[dict[str, RunBuilder]] = {
    "two ranks": BASE,
    "four ranks": FOUR,
    "one process": SINGLE,
    "slow first steps": replace(
        BASE, forward_ms=lambda r, s: 200.0 if s < 5 else 15.0, backward_ms=lambda r, s: 300.0 if s < 5 else 30.0
    ),
    "evaluation shared by all ranks": replace(BASE, parts=(Evaluate(every=20, offset=4),)),
    "accumulation with no_sync": _accumulation(True),
    "a GAN with two optimizers": replace(BASE, models=_GAN),
    "two models, one optimizer": replace(
        BASE,
        models=(
            Model("Encoder", forward_ms=9.0, backward_ms=None, optimizer_ms=None),
            Model("Decoder", forward_ms=8.0, backward_ms=30.0),
        ),
    ),
    "a small checkpoint": replace(BASE, parts=(Save(ms=25.0, every=20, offset=4, ranks=(0,)),)),
    "one checkpoint": replace(BASE, parts=(Save(ms=300.0, when=lambda r, s: s == 60, ranks=(0,)),)),
    "one garbage collection": replace(BASE, parts=(GcPause(ms=120.0, when=lambda r, s: s == 50),)),
    "sharded parameters": replace(BASE, sharded_layers=3, transfer_ms=0.5),
    "noise on all ranks": replace(BASE, noise=0.06, steps=200),
    "noise on four ranks": replace(FOUR, noise=0.06, steps=200),
    "batches that differ alike on all ranks": replace(
        BASE,
        elements=lambda r, s: tokens(0, s),
        forward_ms=lambda r, s: 15 * tokens(0, s) / 4096,
        backward_ms=lambda r, s: 30 * tokens(0, s) / 4096,
    ),
    "workers nearly idle": replace(BASE, loader=Loader(10.0, workers=2)),
    "workers nearly idle, epochs": replace(BASE, loader=Loader(10.0, workers=2, epoch=10, persistent=True)),
    "inference": replace(SINGLE, inference=True, forward_ms=25.0),
    "a few reductions a step": replace(BASE, parts=(Reduce(calls=2, transfer_ms=0.3),)),
    "a pipeline of messages": replace(BASE, parts=(Exchange(transfer_ms=0.5),)),
    "compiled once": replace(BASE, parts=(_COMPILED_FIRST,)),
    "deep records": replace(BASE, parts=_DEEP),
    "a loss read every step": replace(BASE, cuda_devices=1, parts=(DeviceReads(count=1, ms=1.0),)),
    "a quick logger": replace(BASE, parts=(Code(ms=0.6, place=f"{places.TRAIN}:52:log_metrics"),)),
    "no stack samples": replace(BASE, sample_hz=0.0),
    "no counters": replace(BASE, host=None),
    "a busy neighbour on other cores": replace(BASE, host=Host(strangers=(Stranger("make", 3.0),))),
}
"""Name -> a run with nothing wrong."""


@cache
def known_run(name: str) -> MadeUpRun:
    """The simulated run of one of FAULTS or HEALTHY. Kept: treat it as read-only."""
    return (FAULTS[name].run if name in FAULTS else HEALTHY[name]).build()


@cache
def repaired_run(name: str) -> MadeUpRun:
    """One of FAULTS without its fault."""
    return FAULTS[name].repaired.build()
