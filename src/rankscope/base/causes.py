"""The catalogue of causes: every code a finding may carry, its kind, and what it means in one sentence.

Codes are stable: scripts and alert rules of users match on them. Add a line, never rename one.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from rankscope.base.errors import UserError


@dataclass(frozen=True, slots=True)
class Cause:
    """A kind of fault."""

    code: str
    kind: str
    meaning: str


_TABLE: dict[str, dict[str, str]] = {
    "performance": {
        "slow-data-loading": "Steps start late because the next batch is not ready: the code that reads, transforms or "
        "collates samples is too slow, or too few workers run it.",
        "slow-storage": "The loader spends its time in reads from disk or network, not on the CPU.",
        "loader-worker-restart": "Each epoch starts its loader workers or its dataset again from nothing.",
        "worker-affinity": "Loader workers are pinned to fewer cores than the machine would give them.",
        "thread-oversubscription": "All processes together run more busy threads than there are cores.",
        "cpu-contention": "A process that does not belong to the run takes CPU time away from the rank.",
        "cpu-throttling": "A CPU quota of the container or job stops the process again and again.",
        "memory-pressure": "Page faults, swapping or reclaim by the kernel slow the process down.",
        "slow-device": "All kernels of one rank are slower by the same factor, and its host is not the reason.",
        "uneven-work": "Ranks get different amounts of work per step: tokens, lengths or batch sizes differ.",
        "slow-code": "A function of the user's own takes the time: in a phase, between phases, in a hook or callback.",
        "gc-pause": "Python's garbage collector halts one rank at a time while its peers wait.",
        "host-sync": "The host reads values from the device so often that the device has nothing queued.",
        "tiny-collectives": "Each step makes many communication calls that carry very little data.",
        "missing-no-sync": "Gradients are reduced after every micro-batch, not only after the last of a window.",
        "communication-bound": "On every rank, most of the step is communication that no computation hides.",
        "slow-link": "The network path of one rank or node is slower than that of its peers.",
        "checkpoint-stall": "The run stands still while a checkpoint is saved.",
        "evaluation-stall": "The run stands still while some ranks evaluate.",
        "logging-stall": "The run stands still while metrics or artefacts are written.",
        "recompilation": "Compiled code is thrown away and compiled again because a guard keeps failing.",
        "autocast-inactive": "Operators inside an autocast region still run in full precision.",
        "denormals": "Numbers too small for the normal format make the CPU's arithmetic slow.",
        "launch-bound": "Kernels finish faster than the host can launch the next ones.",
        "slow-kernel": "One kernel takes most of the device's time.",
        "pipeline-imbalance": "One stage of the pipeline takes longer, and the others wait for it.",
        "slow-start": "Work before the first step is repeated or takes a large part of the run.",
    },
    "memory": {
        "retained-graph": "Tensors that still hold their autograd graph are kept from step to step.",
        "evaluation-outputs-kept": "The outputs of a whole evaluation stay in memory at once.",
        "growing-cache": "A container in the program gets longer with every step and is never emptied.",
        "hook-leak": "The same hooks are registered again and again and never removed.",
        "worker-memory-growth": "Loader workers turn the memory they share with the parent into copies of their own.",
        "shared-memory-exhausted": "/dev/shm has no room left for the batches that workers pass on.",
        "memory-fragmentation": "The allocator holds far more memory than is in use, but in pieces too small.",
        "overlong-sample": "A single sample, or samples that grow longer, decide the peak of memory.",
        "optimizer-state-memory": "The optimizer's state does not fit: it appears at the first step or too early.",
        "out-of-memory": "An allocation failed and no more precise reason is shown.",
    },
    "failure": {
        "dead-rank": "A process ended first, by a signal or an exit code; what its peers report follows from that.",
        "rank-exception": "A rank raised an exception before any other rank was in trouble.",
        "uneven-inputs": "A rank had no batches left while its peers went on.",
        "local-early-stop": "A rank decided on its own to leave the training loop.",
        "missing-collective": "A rank left out a communication call of its peers, or made one that they did not make.",
        "collective-order-mismatch": "At the same place in the sequence, ranks call different operations.",
        "collective-shape-mismatch": "Ranks call the same operation with tensors of different sizes or types.",
        "unused-parameters": "Parameters that got no gradient keep DDP waiting for their reduction.",
        "slow-rank-timeout": "A rank is busy in its own code for longer than its peers are willing to wait.",
        "stuck-rank": "A rank makes no progress, and not because of communication: a lock, the GIL or an endless loop.",
        "loader-deadlock": "A loader worker waits for a lock that nobody will release.",
        "mode-mismatch": "Some ranks are in training mode while others are in evaluation mode.",
        "rendezvous-failure": "The processes never formed a group: a port, an address or the world size is wrong.",
        "hardware-error": "The device or its driver reported an error.",
        "network-error": "The network fabric reported an error.",
    },
    "numerics": {
        "missing-zero-grad": "Gradients are added up over steps because nothing clears them.",
        "frozen-parameters": "A large part of the model takes no part in learning.",
        "unintended-trainable": "Parameters that should stay as they are change.",
        "optimizer-stale-parameters": "The optimizer updates tensors that no longer belong to the model.",
        "optimizer-skips-parameters": "Parameters get gradients but are never updated.",
        "unregistered-modules": "Modules that run in forward are unknown to the model: nothing moves or trains them.",
        "eval-mode-in-training": "The model trains while it is in evaluation mode.",
        "dropout-in-evaluation": "The model is evaluated while it is still in training mode.",
        "clip-before-unscale": "Gradients are clipped while they still carry the loss scale.",
        "clip-set-incomplete": "Clipping leaves out a part of the parameters that are trained.",
        "loss-scale-collapse": "Gradient overflow makes steps be skipped or drives the loss scale to its floor.",
        "nan-from-data": "The first value that is not finite came in with a batch.",
        "nan-from-operation": "The first value that is not finite came out of an operation with finite inputs.",
        "gradients-not-synchronised": "Each replica trains on gradients of its own.",
        "gradients-double-reduced": "Gradients are averaged or summed over ranks more than once.",
        "replicas-diverged": "Parameters that should be the same on all ranks differ, for a reason not yet known.",
        "buffers-not-synchronised": "Buffers such as running statistics differ between replicas.",
        "silent-corruption": "A device or a transfer returns wrong values without any error.",
        "scheduler-overstepped": "The learning-rate schedule advances too often or is over too soon.",
        "accumulation-not-normalised": "The size of the gradient depends on how many micro-batches were accumulated.",
        "learning-rate-too-high": "Updates are too large in proportion to the weights they change.",
        "exploding-gradients": "Gradients grow from layer to layer or from step to step.",
        "vanishing-gradients": "Gradients all but disappear on their way to the early layers.",
        "dead-units": "Units output the same value for every input and no longer learn.",
        "double-softmax": "The loss function normalises once more what the model has already normalised.",
        "weight-decay-on-norm": "Weight decay shrinks biases or the weights of normalisation layers.",
        "update-lost-to-precision": "Updates are smaller than the spacing of the parameter's number format and vanish.",
        "ema-not-updating": "The moving average of the weights does not follow the weights.",
        "tied-weights-broken": "Weights that should be one and the same tensor have become two.",
        "checkpointing-cuts-gradient": "Activation checkpointing loses the gradient of what it wraps.",
        "resume-discontinuity": "After resuming, the data position, the optimizer or the schedule is not where it was.",
        "loss-spike": "The loss jumps and no cause for it is shown.",
        "loss-not-decreasing": "The loss stays where it is and no cause for it is shown.",
        "overfitting": "Training loss falls while evaluation loss rises.",
    },
    "data": {
        "duplicate-data-across-ranks": "Several ranks train on the same samples.",
        "sampler-epoch-not-set": "Every epoch goes through the data in the same order.",
        "worker-rng-duplicated": "Loader workers or epochs draw the same random augmentations.",
        "unshuffled-data": "Batches follow the order of the labels.",
        "length-sorted-data": "Batches follow the order of the sample lengths.",
        "input-scale": "Inputs are normalised twice, or not at all.",
        "train-eval-mismatch": "Evaluation prepares its inputs in another way than training does.",
        "index-out-of-range": "An index is beyond its embedding table, or a label beyond the number of classes.",
        "unreadable-sample": "A sample is broken and cannot be read.",
        "evaluation-duplicates": "Some samples count more than once in the evaluation.",
        "batch-shape-mismatch": "Inputs and labels do not belong together in size, or ranks pad differently.",
        "label-misalignment": "Labels belong to the neighbours of their inputs.",
        "class-shift": "The distribution of classes changes in the middle of the run.",
        "constant-features": "A feature has the same value in every sample.",
    },
    "inference": {
        "cold-start": "The first requests pay for loading, allocation and warm-up.",
        "compile-at-request": "A request waits while code is compiled for a shape that was not seen before.",
        "slow-postprocessing": "Requests spend their time after the model has answered.",
        "queueing": "Requests wait for other requests before they are worked on.",
    },
    "environment": {
        "misconfiguration": "The machine or its settings are not fit for the run: shared memory, limits, clock, "
        "versions or network interfaces.",
    },
}

KINDS: tuple[str, ...] = tuple(_TABLE)

CAUSES: dict[str, Cause] = {
    code: Cause(code, kind, meaning) for kind, rows in _TABLE.items() for code, meaning in rows.items()
}


def cause(code: str) -> Cause:
    """The cause with this code; UserError with the closest codes where there is none."""
    found = CAUSES.get(code)
    if found is None:
        close = difflib.get_close_matches(code.lower().replace("_", "-"), CAUSES, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "`rankscope causes` lists all of them."
        raise UserError(f"there is no cause {code!r}; {hint}")
    return found
