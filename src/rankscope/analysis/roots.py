"""Which finding is the root: what explains what, and what costs most."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rankscope.base.finding import Finding

HOST = ("slow-device", "slow-code", "slow-data-loading", "uneven-work", "communication-bound", "slow-link", "gc-pause")
"""What a shortage of CPU or memory looks like to the detectors that know nothing of it."""

STOPPED = ("missing-collective", "stuck-rank", "slow-rank-timeout", "network-error")
"""What a rank that died looks like from the others, and in dumps that know nothing of its end."""

EXPLAINS: dict[str, tuple[str, ...]] = {
    "thread-oversubscription": (*HOST, "cpu-contention", "logging-stall", "evaluation-stall", "checkpoint-stall"),
    "cpu-throttling": (*HOST, "cpu-contention", "thread-oversubscription"),
    "cpu-contention": HOST,
    "memory-pressure": HOST,
    "worker-affinity": ("slow-data-loading", "cpu-contention", "slow-storage"),
    "loader-worker-restart": ("slow-data-loading", "slow-storage", "cpu-contention"),
    "slow-storage": ("slow-data-loading",),
    "gc-pause": ("slow-code", "slow-device", "uneven-work"),
    "denormals": ("slow-device", "slow-code", "uneven-work"),
    "recompilation": ("slow-code", "slow-device", "uneven-work", "slow-start", "gc-pause"),
    "uneven-work": ("slow-device", "communication-bound"),
    "missing-no-sync": ("communication-bound", "tiny-collectives", "slow-link", "slow-code"),
    "tiny-collectives": ("communication-bound", "host-sync", "slow-code", "slow-link"),
    "slow-link": ("communication-bound", "slow-code", "slow-device"),
    "checkpoint-stall": ("slow-code", "communication-bound"),
    "evaluation-stall": ("slow-code", "communication-bound", "uneven-work"),
    "logging-stall": ("slow-code",),
    "host-sync": ("slow-code", "communication-bound"),
    "slow-data-loading": ("communication-bound",),
    "slow-code": ("communication-bound",),
    "slow-device": ("communication-bound",),
    "learning-rate-too-high": ("exploding-gradients", "dead-units", "vanishing-gradients", "nan-from-operation",
                               "loss-scale-collapse"),
    "exploding-gradients": ("dead-units", "nan-from-operation", "loss-scale-collapse"),
    "dead-units": ("vanishing-gradients",),
    "update-lost-to-precision": ("optimizer-skips-parameters", "frozen-parameters"),
    "missing-zero-grad": ("learning-rate-too-high", "exploding-gradients", "dead-units"),
    "accumulation-not-normalised": ("learning-rate-too-high", "exploding-gradients", "dead-units"),
    "gradients-double-reduced": ("learning-rate-too-high", "exploding-gradients", "dead-units"),
    "scheduler-overstepped": ("learning-rate-too-high", "dead-units", "optimizer-skips-parameters",
                              "update-lost-to-precision", "ema-not-updating"),
    "input-scale": ("learning-rate-too-high", "exploding-gradients", "vanishing-gradients", "dead-units"),
    "label-misalignment": ("dead-units",),
    "double-softmax": ("vanishing-gradients",),
    "index-out-of-range": ("rank-exception", "dead-rank"),
    "batch-shape-mismatch": ("rank-exception", "dead-rank"),
    "unreadable-sample": ("rank-exception", "dead-rank", "local-early-stop", "uneven-inputs", "missing-collective",
                          "slow-rank-timeout", "stuck-rank"),
    "unshuffled-data": ("class-shift", "loss-spike", "loss-not-decreasing", "overfitting"),
    "class-shift": ("loss-spike", "loss-not-decreasing", "overfitting"),
    "length-sorted-data": ("loss-spike",),
    "resume-discontinuity": ("loss-spike", "sampler-epoch-not-set"),
    "duplicate-data-across-ranks": ("overfitting",),
    "worker-rng-duplicated": ("overfitting",),
    "gradients-not-synchronised": ("replicas-diverged", "buffers-not-synchronised", "clip-set-incomplete"),
    "silent-corruption": ("replicas-diverged",),
    "clip-set-incomplete": ("replicas-diverged",),
    "replicas-diverged": ("buffers-not-synchronised",),
    "clip-before-unscale": ("clip-set-incomplete", "vanishing-gradients", "update-lost-to-precision"),
    "loss-scale-collapse": ("nan-from-operation",),
    "unregistered-modules": ("frozen-parameters", "optimizer-stale-parameters", "replicas-diverged"),
    "checkpointing-cuts-gradient": ("frozen-parameters", "unused-parameters", "vanishing-gradients"),
    "frozen-parameters": ("vanishing-gradients", "dead-units"),
    "optimizer-stale-parameters": ("frozen-parameters", "optimizer-skips-parameters", "ema-not-updating"),
    "optimizer-skips-parameters": ("update-lost-to-precision", "vanishing-gradients", "ema-not-updating"),
    "mode-mismatch": ("eval-mode-in-training",),
    "hardware-error": ("rank-exception", "dead-rank", *STOPPED),
    "out-of-memory": ("rank-exception", "dead-rank", *STOPPED),
    "shared-memory-exhausted": ("rank-exception", "dead-rank", *STOPPED),
    "dead-rank": STOPPED,
    "rank-exception": STOPPED,
}
"""Cause -> causes that may only be its consequence, when they concern the same ranks and cost no more."""

SYMPTOMS = ("loss-spike", "loss-not-decreasing", "overfitting")
"""What the loss shows of any fault of numerics or data: a remark beside the fault itself."""

TIME = ("performance", "memory", "inference", "environment")
"""Kinds of findings that cost time or room, and change no result."""
ORDER = {"critical": 0, "warning": 1, "info": 2}
"""Severity -> its place among the findings."""


def arrange(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings with ids and `explains`, roots first by cost, each followed by what it explains."""
    ranked = sorted(findings, key=_weight)
    explained_by: dict[int, int] = {}
    for i, finding in enumerate(ranked):
        for j, other in enumerate(ranked):
            if i != j and j not in explained_by and _explains(finding, other) and explained_by.get(i) != j:
                explained_by[j] = i
    order: list[int] = []

    def place(index: int) -> None:
        if index in order:
            return
        order.append(index)
        for follower, root in explained_by.items():
            if root == index:
                place(follower)

    for index in range(len(ranked)):
        if index not in explained_by:
            place(index)
    for index in range(len(ranked)):  # what explains each other in a circle
        place(index)
    ids = {index: f"f{number}" for number, index in enumerate(order, 1)}
    return tuple(
        replace(
            ranked[index],
            id=ids[index],
            severity="info" if index in explained_by and ranked[index].cause in SYMPTOMS else ranked[index].severity,
            explains=tuple(ids[j] for j in order if explained_by.get(j) == index),
        )
        for index in order
    )


def _weight(finding: Finding) -> tuple[int, bool, float]:
    """Of findings that are as bad, those of a run that learns the wrong thing come before those of a slow one."""
    return ORDER[finding.severity], finding.kind in TIME, -_cost(finding) * finding.confidence


def _explains(finding: Finding, other: Finding) -> bool:
    symptom = other.cause in SYMPTOMS and finding.cause not in SYMPTOMS and finding.kind in ("numerics", "data")
    known = symptom or other.cause in EXPLAINS.get(finding.cause, ())
    if not known or ORDER[finding.severity] > ORDER[other.severity]:
        return False
    if _cost(other) > _margin(finding, other) * _cost(finding):
        return False  # a consequence costs no more than its cause
    return finding.all_ranks or other.all_ranks or bool(set(finding.ranks) & set(other.ranks))


def _margin(finding: Finding, other: Finding) -> float:
    """How much dearer a consequence may look: by the noise of both estimates.

    What Python code takes by itself is not made by a lack of CPUs, only longer: there, no dearer at all.
    """
    return 1.0 if finding.cause == "cpu-contention" and other.cause == "slow-code" else 1.25


def _cost(finding: Finding) -> float:
    cost = finding.cost
    return (cost.recoverable_share if cost.recoverable_share is not None else cost.share) or 0.0
