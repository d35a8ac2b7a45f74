"""Finds runs in which some ranks wait while others evaluate."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis import stalls, timeline
from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.base.finding import Finding
from rankscope.records.training import Step


class EvaluationStall(Detector):
    """Some ranks evaluate while the others wait for them.

    ## What it is
    Validation on rank 0 only, or on uneven shards: the other ranks sit in the next collective until it is over.

    ## What shows it
    Forward passes in eval mode without gradients (and the function around them) on a part of the ranks, on the
    critical path of the run. Evaluation that all ranks share evenly is not a stall.

    ## What else looks like it
    A checkpoint at the same interval (`checkpoint-stall`).

    ## What to do
    Shard the validation set over all ranks and reduce the metric, evaluate less often or on a sample, or evaluate
    checkpoints in a job of its own.
    """

    name = "evaluation-stall"
    needs = (Step,)

    def examine(self, facts: Facts) -> Iterator[Finding]:
        stall = stalls.assess(facts, timeline.EVALUATION)
        if stall is not None and not stall.everywhere:
            yield stalls.finding(
                facts,
                stall,
                self.name,
                "evaluating",
                (
                    "shard the evaluation over all ranks and reduce the metric at its end",
                    "evaluate less often, on a sample, or in a job of its own",
                ),
            )
