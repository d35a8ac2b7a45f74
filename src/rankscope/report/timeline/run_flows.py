"""Which calls of which ranks are one collective, as flows between them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.report.timeline.parts import ENDS, GOES_ON, STARTS, Flow, Ints, Mask
from rankscope.report.timeline.window import Window


def collective_flows(facts: Facts, positions: Sequence[int], window: Window) -> dict[int, Flow]:
    """For each rank a flow over all its collectives; those that no second rank was seen in, in the window, have none.

    A flow goes from the first rank to enter to the last one, for whom all others wait.
    """
    inside, keys = [], []
    for position in positions:
        calls = facts.timelines[position].collectives
        start = calls["time_ns"].astype(np.int64)
        inside.append(window.touched(start, start + calls["duration_ns"].astype(np.int64)))
        keys.append(facts.matches.ids[position])
    flows = flows_of(keys, [facts.timelines[p].collectives["time_ns"].astype(np.int64) for p in positions], inside)
    return dict(zip(positions, flows, strict=True))


def flows_of(calls: Sequence[Ints], enter_ns: Sequence[Ints], chosen: Sequence[Mask], first_id: int = 1) -> list[Flow]:
    """A flow for each rank. `calls[rank]`: the same number for the same collective on every rank, which may come back
    (a group that was made anew counts from the beginning); below 0: not known. Ids count up from `first_id`."""
    owner = np.concatenate([np.full(len(mine), i) for i, mine in enumerate(calls)]) if calls else np.empty(0, np.int64)
    rows = np.concatenate([np.arange(len(mine)) for mine in calls]) if calls else owner
    call = np.concatenate(calls) if calls else owner
    enter = np.concatenate(enter_ns) if calls else owner
    take = np.flatnonzero((np.concatenate(chosen) if calls else np.empty(0, bool)) & (call >= 0))
    owner, rows, call, enter = owner[take], rows[take], call[take], enter[take]
    order = np.lexsort((enter, call, owner))
    again = np.zeros(len(order), np.int64)
    if len(order):
        same = (np.diff(owner[order]) == 0) & (np.diff(call[order]) == 0)
        starts = np.maximum.accumulate(np.where(np.append(True, ~same), np.arange(len(order)), 0))
        again[order] = np.arange(len(order)) - starts
    order = np.lexsort((owner, enter, again, call))
    ids, roles = _chains(call[order], again[order])
    made = [Flow(np.zeros(len(mine), np.int64), np.zeros(len(mine), np.int8)) for mine in calls]
    for rank, flow in enumerate(made):
        mine = owner[order] == rank
        flow.id[rows[order][mine]] = ids[mine] + first_id
        flow.role[rows[order][mine]] = roles[mine]
    return made


def _chains(call: Ints, again: Ints) -> tuple[Ints, Ints]:
    """(number of its chain, role) of sorted members."""
    if not len(call):
        return call, call
    new = np.append(True, (np.diff(call) != 0) | (np.diff(again) != 0))
    last = np.append(new[1:], True)
    roles = np.select([new & last, new, last], [0, STARTS, ENDS], GOES_ON)
    return np.cumsum(new) - 1, roles
