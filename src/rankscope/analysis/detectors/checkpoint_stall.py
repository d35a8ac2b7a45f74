"""Finds runs that stand still while a checkpoint is written."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis import stalls, timeline
from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.base.finding import Finding
from rankscope.records.training import Step


class CheckpointStall(Detector):
    """Saving stops the run, on the rank that saves and on those that wait for it.

    ## What it is
    A synchronous checkpoint: the training thread writes (and flushes) the state to disk before the next step.

    ## What shows it
    Time in `torch.save` and its kin and in the function around it, on the critical path of the run.

    ## What else looks like it
    Evaluation or logging at the same interval.

    ## What to do
    Save asynchronously (`torch.distributed.checkpoint.async_save`, or copy to host memory and write in a thread), less
    often, sharded over ranks, to a faster disk.
    """

    name = "checkpoint-stall"
    needs = (Step,)

    def examine(self, facts: Facts) -> Iterator[Finding]:
        stall = stalls.assess(facts, timeline.CHECKPOINT)
        if stall is not None:
            yield stalls.finding(
                facts,
                stall,
                self.name,
                "writing checkpoints",
                (
                    "save asynchronously: copy to host memory, write in a background thread or process",
                    "save less often, or only what changed; shard the checkpoint over the ranks",
                ),
            )
