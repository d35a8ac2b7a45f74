"""Finds replicas that train on gradients of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rankscope.analysis import tensors, wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.gradient_path import backward_place
from rankscope.analysis.replicas import communicates, gap
from rankscope.analysis.stacks import Place
from rankscope.analysis.synchronisation import Unsynchronised, unsynchronised
from rankscope.analysis.tables import column
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.gradient_calls import Wrapping
from rankscope.records.numerics import GradientStat
from rankscope.records.training import Backward, Call

SHOWN = 3


@dataclass(frozen=True, slots=True)
class Why:
    """What keeps gradients from being averaged."""

    text: str
    place: Place | None
    next: tuple[str, ...]
    component: str = ""


class GradientsNotSynchronised(Detector):
    """Replicas train on their own gradients: the ranks learn different models.

    ## What it is
    The optimizer of each rank gets the gradient of its own batch alone. Only one of the models is saved, so the others'
    data and computation are lost, and nothing in the loss shows it. Reasons: the forward goes past
    `DistributedDataParallel` (`model.module(x)`), parameters were replaced after wrapping, `no_sync` covers the wrong
    micro-batch, a parameter is left out of a reduction by hand, the process group holds one rank.

    ## What shows it
    Samples of gradients as the optimizer gets them differ between ranks that must agree, by more than rounding, on most
    sampled steps. Which ranks must agree follows from the wrapper, the layout of distributed tensors, or from the
    gradients of the model's other parameters that are reduced.

    ## What else looks like it
    Sharded, tensor-parallel and expert-parallel parameters differ by design. Ranks of a sweep that never communicate
    are no replicas. Where parameters themselves are averaged now and then (local SGD), gradients may differ.

    ## What to do
    Call the wrapper, not `.module`; wrap after the last change of parameters; leave the last micro-batch of a window
    outside of `no_sync()`; reduce every trained parameter.
    """

    name = "gradients-not-synchronised"
    needs = (GradientStat,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if facts.size < 2:
            raise CannotExamine("one rank: there is nothing to compare")
        if not communicates(facts):
            raise CannotExamine("the ranks do not communicate: they are not meant to be equal, for all that is known")
        for why, all_of in _by_reason(facts):
            found = max(all_of, key=lambda one: one.apart)
            keys = [key for one in all_of for key in one.keys]
            models = [one.model for one in all_of]
            whole = all(one.whole for one in all_of)
            names = models if whole else [key[1] for key in keys]
            shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
            key = found.keys[0]
            distance = float(np.max(gap(tensors.gradients(facts)[key], found.positions)))
            yield Finding(
                cause=self.name,
                severity="critical",
                confidence=0.97 if found.certain else 0.85,
                title=f"gradients of {shown} are not averaged over ranks: {why.text}{wording.at(why.place)}; each rank "
                "trains alone",
                ranks=facts.numbers(found.positions),
                all_ranks=len(found.positions) == facts.size,
                phase="backward",
                component=why.component or ", ".join(names[:SHOWN]),
                location=wording.location(why.place or backward_place(facts, found.positions[0])),
                first_step=min(one.first for one in all_of),
                last_step=max(one.last for one in all_of),
                cost=Cost(None, None, None),
                evidence=(
                    Evidence("sampled steps on which gradients differ between ranks", float(found.apart), "count"),
                    Evidence("of so many sampled steps", float(found.seen), "count"),
                    Evidence("parameters whose gradients differ", float(len(keys)), "count"),
                    Evidence("parameters that must agree", float(sum(one.of for one in all_of)), "count"),
                    Evidence(f"largest relative distance between ranks, {key[1]}", distance, "share"),
                ),
                next=why.next,
            )


def _by_reason(facts: Facts) -> list[tuple[Why, list[Unsynchronised]]]:
    """What has one reason and one place is one finding."""
    found: dict[tuple[str, Place | None], tuple[Why, list[Unsynchronised]]] = {}
    for one in unsynchronised(facts):
        why = _why(facts, one)
        found.setdefault((why.text, why.place), (why, []))[1].append(one)
    return list(found.values())


def _why(facts: Facts, found: Unsynchronised) -> Why:
    position = found.positions[0]
    if not found.wrapped:
        return Why(
            "nothing reduces them" if found.whole
            else "they are left out of the reduction that the other parameters get", None,
            ("reduce the gradient of every trained parameter, or wrap the model in DistributedDataParallel",),
        )  # fmt: skip
    rows = found.wrapping
    if rows is not None and len(rows):
        pid = facts.ranks[position].pid
        members = facts.tables.name(pid, int(column(rows, Wrapping, "members")[-1])).split(",")
        if len(members) == 1:
            return Why("its process group holds this rank alone", None, ("give the wrapper a group of all replicas",))
        if column(rows, Wrapping, "unknown").any():
            last = rows[column(rows, Wrapping, "unknown") > 0][-1:]
            names = facts.tables.name(pid, int(column(last, Wrapping, "names")[0])).split()
            return Why(
                f"{', '.join(names[:SHOWN])} replaced after DistributedDataParallel was made, whose hooks hang on the "
                "parameters before", None, ("wrap the model after its last parameter is replaced",),
                component=", ".join(names[:SHOWN]),
            )  # fmt: skip
        past = rows[(column(rows, Wrapping, "past") > 0) & (column(rows, Wrapping, "through") == 0)]
        if not len(past):
            past = rows[column(rows, Wrapping, "past") > 0]
        if len(past):
            place = facts.place(position, int(column(past, Wrapping, "past_site")[-1]))
            return Why(
                "its forward goes past DistributedDataParallel (`.module`)", place,
                ("call the wrapper itself; give it a method through `forward` where another one is needed",),
            )  # fmt: skip
    place, early, calls = _no_sync(facts, position)
    if calls:
        text = (
            "the last micro-batch is inside no_sync() and an earlier one is reduced" if early
            else "every micro-batch is inside no_sync()"
        )  # fmt: skip
        return Why(text, place, ("leave the last micro-batch before the optimizer step outside of no_sync()",))
    if rows is not None and len(rows) and not column(rows, Wrapping, "synchronises").any():
        return Why(
            "DistributedDataParallel is told not to (`require_backward_grad_sync` is off)", None,
            ("switch it on for the last micro-batch before the optimizer step",),
        )  # fmt: skip
    if found.reduces:
        return Why(
            "they are changed after the reduction, on each rank in its own way", None,
            ("look for what writes to `.grad` between backward and the optimizer step",),
        )  # fmt: skip
    return Why(
        "no reduction runs in backward; the wrapper's hooks are lost or switched off", None,
        ("wrap the model after it was moved or converted (`.to`, `.half`)", "call the wrapper, not `.module`"),
    )  # fmt: skip


def _no_sync(facts: Facts, position: int) -> tuple[Place | None, bool, int]:
    """(line that enters no_sync, whether an earlier micro-batch is reduced, calls)."""
    rows = facts.rows(Call, position, window=False)
    pid = facts.ranks[position].pid
    ids = [id for id in np.unique(rows["name"]) if facts.tables.name(pid, int(id)).endswith(".no_sync")]
    mine = rows[np.isin(rows["name"], ids)]
    if not len(mine):
        return None, False, 0
    backwards = facts.rows(Backward, position, window=False)
    reduces = column(backwards, Backward, "collectives") > 0
    last = np.append(backwards["step"][1:] != backwards["step"][:-1], True)
    return facts.place(position, int(mine[-1]["a"]) & 0xFFFF), bool((reduces & ~last).any()), len(mine)
