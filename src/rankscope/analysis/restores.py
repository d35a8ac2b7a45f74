"""Checkpoints that a rank took over: when, from which file, and which states with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import Place
from rankscope.analysis.tables import column
from rankscope.records.training import Call

MODEL, OPTIMIZER, SCHEDULE = "Module.load_state_dict", "Optimizer.load_state_dict", "LRScheduler.load_state_dict"
LOAD, SAVE, SHARDED = "torch.load ", "torch.save ", "torch.distributed.checkpoint.load"
HELD = " with optimizer"


@dataclass(frozen=True, slots=True)
class Restore:
    """What was taken over between two steps."""

    time_ns: int
    """When the last of it was."""
    step: int
    """Steps that were finished."""
    path: str
    """Of the file; empty: none was read."""
    saved_step: int | None
    """Steps that were finished when this process had written that file; None: it had not."""
    saved_ns: int
    model: bool
    optimizer: bool
    schedule: bool
    optimizer_in_file: bool
    saves_again: bool
    """The process writes that file later."""
    place: Place | None


def restores(facts: Facts, position: int) -> tuple[Restore, ...]:
    """The times at which a rank took over a checkpoint: a model's state that was read from a file, or came together
    with an optimizer's. Weights that are copied from one network to another are none."""
    return facts.once(_restores, position)


def restored_between(facts: Facts, position: int, begin_ns: int, end_ns: int) -> bool:
    """Whether a checkpoint was taken over between two moments."""
    return any(begin_ns < one.time_ns < end_ns for one in restores(facts, position))


def _restores(facts: Facts, position: int) -> tuple[Restore, ...]:
    rows = facts.rows(Call, position, window=False)
    pid = facts.ranks[position].pid
    names = np.array([facts.tables.name(pid, int(n)) for n in rows["name"].tolist()], str)
    wanted = np.array([n in (MODEL, OPTIMIZER, SCHEDULE, SHARDED) or n.startswith((LOAD, SAVE)) for n in names], bool)
    if not wanted.any():
        return ()
    rows, names = rows[wanted], names[wanted]
    saves = [
        (path, int(row["time_ns"]), int(row["step"]))
        for name, row in zip(names.tolist(), rows, strict=True)
        if (path := _path(name, SAVE))
    ]
    found = []
    for step in np.unique(rows["step"]).tolist():
        mine = rows["step"] == step
        texts = names[mine].tolist()
        files = [(name, row) for name, row in zip(texts, rows[mine], strict=True) if name.startswith((LOAD, SHARDED))]
        model, optimizer = MODEL in texts, OPTIMIZER in texts
        if not model or not (files or optimizer):
            continue
        states = [row for name, row in zip(texts, rows[mine], strict=True) if name in (MODEL, OPTIMIZER, SCHEDULE)]
        path = _path(files[-1][0], LOAD) if files else ""
        read_ns = int(files[-1][1]["time_ns"]) if files else int(states[0]["time_ns"])
        before = [one for one in saves if one[0] == path and one[1] < read_ns]
        place = facts.place(position, int(column(np.array([states[0]]), Call, "site")[0]))
        found.append(
            Restore(
                time_ns=int(states[-1]["time_ns"]),
                step=int(step),
                path=path,
                saved_step=before[-1][2] if before else None,
                saved_ns=before[-1][1] if before else 0,
                model=model,
                optimizer=optimizer,
                schedule=SCHEDULE in texts,
                optimizer_in_file=any(name.endswith(HELD) for name, _ in files),
                saves_again=any(one[0] == path and one[1] > read_ns for one in saves),
                place=place,
            )
        )
    return tuple(found)


def _path(name: str, call: str) -> str:
    return name.removeprefix(call).removesuffix(HELD) if name.startswith(call) else ""
