"""Why a run came to a stop: the assessment that all detectors of failures share.

From the surest to the vaguest: what a rank itself did (an exception, a death), what ranks called that did not fit
together, who left its peers alone, who does something else while its peers wait.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.ends import End, ends, fault_place
from rankscope.analysis.facts import Facts
from rankscope.analysis.failures import HARDWARE, NETWORK, UNUSED, failure, gave_up
from rankscope.analysis.going_on import may_go_on
from rankscope.analysis.hot_code import last_place
from rankscope.analysis.modes import odd_modes
from rankscope.analysis.pairs import SEND, Unmet, cycle, last_waited_for, unmet
from rankscope.analysis.source_order import head, leaving, left_loop_by_choice, same_loop
from rankscope.analysis.stacks import Place
from rankscope.analysis.standing import (
    STALLED_NS,
    Standing,
    end_of,
    ended_well,
    left_waiting,
    process_standing,
    stalled,
    standing,
)
from rankscope.analysis.tables import column
from rankscope.analysis.wavefront import (
    SEEN_OFTEN,
    UNEQUAL,
    Call,
    Front,
    call_before,
    calls,
    fronts,
    habit,
    history,
    known_to,
    last_front,
)
from rankscope.analysis.wording import numbered
from rankscope.analysis.worker_deaths import worker_death
from rankscope.base.outside import STOPPED
from rankscope.records.host import CaughtException, LastCall
from rankscope.records.loading import BatchWait, LoaderStart

SIZES = re.compile(r"preamble|nbytes|mismatch|invalid (tensor )?size|shapes? (do|does) not match", re.IGNORECASE)
"""In the text of an error of a communication library: the messages did not fit together."""
ABORT = 6
"""The signal by which a C++ library ends a process that it can do nothing more for."""
BUSY_NS = 10_000_000_000
"""A rank that does something of its own for less is not blamed, even where its peers wait for it."""
HOLDS_LOCK = "sleeps in native code and holds the interpreter lock"
IDLE_WORKER = ("/multiprocessing/queues.py", "/multiprocessing/connection.py", "/selectors.py")
"""Files of Python in which a loader worker waits for orders."""


@dataclass(frozen=True, slots=True)
class Blame:
    """The root of a stop."""

    cause: str
    positions: tuple[int, ...]
    place: Place | None
    why: str
    """The main fact, in words."""
    confidence: float
    front: Front | None = None
    end: End | None = None
    component: str = ""
    """What is at fault, where it is neither the operation nor the function."""


def blame(facts: Facts) -> Blame | None:
    """The root of a run's stop; None where the run did not stop, or nothing shows why."""
    return facts.once(_blame)


def _blame(facts: Facts) -> Blame | None:
    failed = failure(facts)
    if failed is not None:
        return _own_failure(facts, failed.roots[0], tuple(end.position for end in failed.roots))
    left_alone = [end for end in ends(facts) if end.failed]
    stuck = stalled(facts)
    if not left_alone and not stuck:
        return None
    return (
        _modes(facts)
        or _mismatch(facts)
        or _unmet_pair(facts)
        or _left(facts)
        or _elsewhere(facts, left_alone)
        or _network(facts, left_alone)
    )


# -- an end of its own -------------------------------------------------------------------------------------------------


def _own_failure(facts: Facts, first: End, positions: tuple[int, ...]) -> Blame:
    sizes = _sizes(facts)
    if sizes is not None and (first.signal == ABORT or SIZES.search(first.exception)):
        return sizes
    worker = worker_death(facts, first)
    if worker is not None:
        return Blame("rank-exception", positions, worker.place or first.place, worker.words, 0.9, end=first)
    if UNUSED.search(first.exception):
        names = first.exception.partition("no gradient for ")[2].partition(": Expected")[0]
        words = names or first.exception
        return Blame("unused-parameters", positions, first.place, words, 0.95, end=first, component=names)
    if first.no_group:
        # A launcher that fails has no line of the user's; it binds the port that rank 0 would.
        launcher = facts.ranks[first.position].process.role == "launcher"
        place = None if launcher else first.place
        return Blame("rendezvous-failure", positions[:1], place, first.exception, 0.9, None, first, "rendezvous")
    if HARDWARE.search(first.exception):
        return Blame("hardware-error", positions, first.place, first.exception, 0.85, end=first)
    if first.exception:
        return Blame("rank-exception", positions, first.place, first.exception, 0.95, end=first)
    return Blame("dead-rank", (first.position,), _last_line(facts, first.position), first.how, 0.95, end=first)


def _last_line(facts: Facts, position: int) -> Place | None:
    """Where a process died: the call that ended it, the innermost line of the user's in its fault file, a sample."""
    pid = facts.ranks[position].pid
    said = facts.tables.of(LastCall)
    said = said[said["process"] == pid]
    if len(said):
        return facts.place(position, int(column(said[-1:], LastCall, "site")[0]))
    return fault_place(facts, pid, facts.ranks[position].process.library_folders) or last_place(facts, position)


def _sizes(facts: Facts) -> Blame | None:
    """The last operation that all ranks of a group called, where its sizes differ though they must not."""
    for group in {call.group for front in _last_fronts(facts) for call in front.entered.values()}:
        front = last_front(facts, group)
        if front is None or not _must_agree(facts, front):
            continue
        by_shape: dict[str, list[int]] = {}
        for position, call in front.entered.items():
            by_shape.setdefault(call.shape, []).append(position)
        if len(by_shape) < 2:
            continue
        camps = sorted(by_shape.values(), key=len)
        odd = tuple(camps[0]) if len(camps[0]) < len(camps[-1]) else tuple(sorted(front.entered))
        call = front.entered[odd[0]]
        shapes = " and ".join(f"{shape} on {_who(facts, tuple(camp))}" for shape, camp in by_shape.items())
        return Blame("collective-shape-mismatch", odd, call.site, f"{call.operation} of {shapes}", 0.95, front)
    return None


def _last_fronts(facts: Facts) -> list[Front]:
    groups = {call.group for p in range(facts.size) for call in calls(facts, p)[-50:]}
    return [front for group in sorted(groups) if (front := last_front(facts, group)) is not None]


def _must_agree(facts: Facts, front: Front) -> bool:
    """Whether all ranks must bring the same sizes: by the operation, or because they always have in that line."""
    operations = {call.operation for call in front.entered.values()}
    if len(operations) > 1:
        return False
    return not operations & set(UNEQUAL) or _have_agreed(facts, front)


def _have_agreed(facts: Facts, front: Front) -> bool:
    """Whether the earlier calls of these lines had the same sizes on all ranks, each time."""
    earlier: dict[int, list[str]] = defaultdict(list)
    for position, last in front.entered.items():
        for call in calls(facts, position):
            if call.group == front.group and call.where == last.where and call.sequence < front.sequence:
                earlier[call.sequence].append(call.shape)
    known = [shapes for shapes in earlier.values() if len(shapes) == len(front.entered)]
    return len(known) >= SEEN_OFTEN and all(len(set(shapes)) == 1 for shapes in known)


def _network(facts: Facts, left_alone: list[End]) -> Blame | None:
    """Connections that failed between ranks of which none had died, left or stopped."""
    first = left_alone[0] if left_alone else None
    if first is None or not NETWORK.search(first.exception) or not all(end_of(facts, p) for p in range(facts.size)):
        return None
    return Blame("network-error", (first.position,), first.place, first.exception, 0.6, end=first)


def _modes(facts: Facts) -> Blame | None:
    """Ranks that wait for one another in different operations, and train in different modes."""
    odd, model = odd_modes(facts)
    if not odd or not any(_stops(facts, front) for front in fronts(facts)):
        return None
    why = f"trained {model} in another mode than the others: layers that synchronise in training mode only do not match"
    return Blame("mode-mismatch", odd, None, why, 0.85, component=model)


# -- calls that do not fit together ------------------------------------------------------------------------------------


def _mismatch(facts: Facts) -> Blame | None:
    found = fronts(facts)
    waiting = [front for front in found if _stops(facts, front)]
    caught = _caught(facts, waiting)
    if caught is not None:
        return caught
    best: tuple[float, Blame] | None = None
    for front in waiting:
        judged = _judge(facts, front)
        if judged is not None and (best is None or judged[0] > best[0]):
            best = judged
    return best[1] if best is not None else _sizes(facts)


def _stops(facts: Facts, front: Front) -> bool:
    """Whether the ranks at a front wait in it, or have been left alone in it: an operation on its way stops nobody."""
    return any(left_waiting(facts, p) for p in front.entered)


def _caught(facts: Facts, waiting: list[Front]) -> Blame | None:
    """An exception that a rank caught just before it called what its peers did not."""
    rows = facts.tables.of(CaughtException)
    for front in waiting:
        for position, call in front.entered.items():
            before = call_before(facts, position, call)
            mine = rows[rows["process"] == facts.ranks[position].pid]
            mine = mine[(mine["time_ns"] > (before.time_ns if before else 0)) & (mine["time_ns"] < call.time_ns)]
            others = [c for p, c in front.entered.items() if p != position and c.where != call.where]
            mine = mine[~np.isin(mine["name"], _usual(facts, position, call.time_ns))]
            if len(mine) and others:
                first = mine[:1]
                text = facts.tables.name(facts.ranks[position].pid, int(first["name"][0]))
                place = facts.place(position, int(column(first, CaughtException, "site")[0]))
                return Blame("rank-exception", (position,), place, text, 0.85, front)
    return None


def _usual(facts: Facts, position: int, until_ns: int) -> NDArray[np.uint16]:
    """Exceptions (name ids of their texts) that the rank has caught again and again, and gone on."""
    rows = facts.tables.of(CaughtException)
    mine = rows[(rows["process"] == facts.ranks[position].pid) & (rows["time_ns"] < until_ns)]
    texts, counts = np.unique(mine["name"], return_counts=True)
    return texts[counts > SEEN_OFTEN]


def _judge(facts: Facts, front: Front) -> tuple[float, Blame] | None:
    """(how unusual it is, who is the odd one at a front)."""
    # Before any front: the call that stopped one group is not to be a habit in the eyes of another.
    moment = min(call.time_ns for one in fronts(facts) for call in one.entered.values())
    surprise = {p: _surprise(facts, p, call, moment) for p, call in front.entered.items()}
    elsewhere = {p: where for p in front.absent if (where := _other_call(facts, p, front)) is not None}
    surprise |= {p: _surprise(facts, p, call, moment) for p, call in elsewhere.items()}
    if len(front.camps) < 2 and not elsewhere:
        return None  # the absent ranks are in no communication: they left, or do something else
    odd, calls_of = _odd(facts, front, surprise, elsewhere)
    call = calls_of[odd[0]]
    other = next((c for p, c in {**front.entered, **elsewhere}.items() if p not in odd), None)
    weight = max(surprise[p] for p in odd)
    if other is None:
        return None
    left = _left_loop(facts, odd, tuple(p for p in {**front.entered, **elsewhere} if p not in odd), call, other)
    if left is not None:
        place = _loader_site(facts, odd[0]) or head(other.site) if left == "uneven-inputs" else leaving(other.site)
        why = f"went on to {call.short} while they were in {other.short}"
        return weight, Blame(left, odd, place or call.site, why, 0.85, front)
    if call.site != other.site and same_loop(call.site, other.site):
        everyone = tuple(sorted(front.entered))
        odd = odd if len(odd) * 2 < len(everyone) else everyone
        both = " and ".join(front.entered[camp[0]].short for camp in front.camps)
        return weight, Blame("collective-order-mismatch", odd, call.site, f"at the same count: {both}", 0.9, front)
    if not known_to(facts, [p for p in front.entered if p not in odd], call):  # one call too many
        why = f"called {call.short}, which the others do not: they were in {other.short}"
        return weight, Blame("missing-collective", odd, call.site, why, 0.9, front)
    why = f"did not call {other.short} as the others did, and went on to {call.short}"
    return weight, Blame("missing-collective", odd, other.site, why, 0.9, front, component=other.short)


def _odd(
    facts: Facts, front: Front, surprise: dict[int, float], elsewhere: dict[int, Call]
) -> tuple[tuple[int, ...], dict[int, Call]]:
    """The ranks that did something else than the rest, and what all of them called."""
    called = {**front.entered, **elsewhere}
    camps: dict[tuple[str, str, int], list[int]] = {}
    for position, call in called.items():
        camps.setdefault(call.where, []).append(position)
    ordered = sorted(camps.values(), key=len)
    if len(ordered[0]) < len(ordered[-1]):
        return tuple(ordered[0]), called
    new = [camp for camp in ordered if all(surprise[p] >= 1 for p in camp)]
    if len(new) == 1 and len(ordered) > 1:
        return tuple(new[0]), called  # nobody has ever done so
    worst = max(ordered, key=lambda camp: max(surprise[p] for p in camp))
    rest = tuple(p for p in sorted(called) if p not in worst)
    if all(_exhausted(facts, p) == _exhausted(facts, worst[0]) for p in rest):
        # What the others have called there as well they call as a rule, and have left out now.
        skipped = known_to(facts, rest, called[worst[0]])
        return (rest if skipped else tuple(worst)), called
    return (tuple(worst) if _exhausted(facts, worst[0]) else rest), called


def _surprise(facts: Facts, position: int, call: Call, moment: int) -> float:
    """1: nobody has ever called it after what was called before; 0: always."""
    count, of = habit(facts, position, call, moment)
    return 1 - count / of if of else 0.0


def _other_call(facts: Facts, position: int, front: Front) -> Call | None:
    """What an absent rank waits in, in another group, and for ever; None of one that may yet come."""
    if not left_waiting(facts, position) or position in may_go_on(facts):
        return None
    return next((f.entered[position] for f in fronts(facts) if f is not front and position in f.entered), None)


def _left_loop(facts: Facts, odd: tuple[int, ...], others: tuple[int, ...], call: Call, other: Call) -> str | None:
    """Whether the odd ranks are behind a loop that their peers are still in: out of batches, or by a choice."""
    ran_out = [_exhaustions(facts, p) for p in odd]
    theirs = [_exhaustions(facts, p) for p in others]
    if ran_out and theirs and min(ran_out) > max(theirs):
        return "uneven-inputs"
    chosen = left_loop_by_choice(other.site, call.site)
    if chosen is None:
        return None
    return "local-early-stop" if chosen else "uneven-inputs"


def _exhaustions(facts: Facts, position: int) -> int:
    """How often the rank's training loader has come to its end."""
    rows = facts.rows(BatchWait, position, window=False)
    return int((column(rows, BatchWait, "ended") & column(rows, BatchWait, "grad")).sum()) if len(rows) else 0


def _exhausted(facts: Facts, position: int) -> bool:
    """Whether the last thing that the rank asked of its training loader was past its end."""
    rows = facts.rows(BatchWait, position, window=False)
    rows = rows[column(rows, BatchWait, "grad") > 0]
    return bool(len(rows)) and bool(column(rows[-1:], BatchWait, "ended")[0])


def _unmet_pair(facts: Facts) -> Blame | None:
    """A rank that did not send or receive what a peer waits for, and waits for something else itself."""
    for position in sorted(unmet(facts)):
        ring = cycle(facts, position)
        moment = min(link.call.time_ns for link in unmet(facts).values())
        new = [p for p in ring if _surprise(facts, p, unmet(facts)[p].call, moment) >= 1]
        if len(new) == 1:  # it waits where nobody has ever waited: it left out what its peer waits for
            return _not_met(facts, next(unmet(facts)[p] for p in ring if unmet(facts)[p].peer == new[0]))
        if ring:
            first = unmet(facts)[ring[0]].call
            both = " and ".join(f"rank {facts.ranks[p].rank} in {unmet(facts)[p].call.short}" for p in ring[:4])
            return Blame("collective-order-mismatch", ring, first.site, f"each waits for the other: {both}", 0.9)
        link = last_waited_for(facts, position)
        if link is None or link.peer in may_go_on(facts) or ended_well(facts, link.peer):
            continue
        return _not_met(facts, link)
    return None


def _not_met(facts: Facts, link: Unmet) -> Blame:
    """The peer of a rank that waits in a send or receive."""
    theirs = calls_end(facts, link.peer)
    waiting = facts.ranks[link.position].rank
    went_on = f", and went on to {theirs.short}" if theirs is not None else ""
    verb = "receive from" if link.call.operation == SEND else "send to"
    why = f"did not {verb} rank {waiting}, which waits in {link.call.short} after {link.met} of them{went_on}"
    return Blame("missing-collective", (link.peer,), link.call.site, why, 0.85, component=link.call.short)


# -- ranks that are not there ------------------------------------------------------------------------------------------


def _left(facts: Facts) -> Blame | None:
    """A rank that ended by itself, without an error, while its peers were still waiting for it."""
    gone = [end for end in ends(facts) if not end.failed and end.clean]
    waiting = [p for p in range(facts.size) if left_waiting(facts, p)]
    if not gone or not waiting:
        return None
    first = gone[0]
    later = [p for p in waiting if (end := end_of(facts, p)) is None or end.time_ns >= first.time_ns]
    if not later:
        return None
    leavers = tuple(end.position for end in gone if end.position not in waiting)
    mine = [_exhaustions(facts, p) for p in leavers]
    theirs = [_exhaustions(facts, p) for p in later]
    theirs_call = calls_end(facts, later[0])
    inside = theirs_call.site if theirs_call is not None else None
    way_out = leaving(inside)
    ran_out = min(mine) > max(theirs) or (way_out is None and head(inside) is not None)
    place = (_loader_site(facts, leavers[0]) or head(inside)) if ran_out else way_out
    why = f"came to the end of the program after {first.step} steps"
    cause = "uneven-inputs" if ran_out else "local-early-stop"
    return Blame(cause, leavers, place, why, 0.85, end=first, component="" if place else "training loop")


def _loader_site(facts: Facts, position: int) -> Place | None:
    """The line that goes through the training loader: where its last iterator was made."""
    rows = facts.rows(LoaderStart, position, window=False)
    return facts.place(position, int(column(rows[-1:], LoaderStart, "site")[0])) if len(rows) else None


def calls_end(facts: Facts, position: int) -> Call | None:
    """The last operation that a rank called."""
    own = history(facts, position)
    return own[-1] if own else None


def _elsewhere(facts: Facts, left_alone: list[End]) -> Blame | None:
    """A rank that does something else while its peers wait for it."""
    at = {p: standing(facts, p) for p in range(facts.size)}
    waiting = [p for p in at if left_waiting(facts, p)]
    busy = [p for p in at if p not in waiting and not ended_well(facts, p)]
    stopped = tuple(p for p in busy if at[p].stopped and p in stalled(facts))
    if stopped and (waiting or len(stopped) == len(busy)):
        return Blame("stuck-rank", stopped, at[stopped[0]].place, STOPPED, 0.95)
    if not busy or (facts.size > 1 and not waiting):
        return None
    position = min(busy, key=lambda p: at[p].since_ns)
    own = at[position]
    worker = _locked_worker(facts, position) if own.loads else None
    if worker is not None:
        return Blame("loader-deadlock", (position,), worker.place, "a loader worker waits for a lock", 0.9)
    if not own.loads and any(end.timed_out or end in gave_up(facts) for end in left_alone):
        return Blame("slow-rank-timeout", (position,), own.place, "was busy longer than its peers waited", 0.9)
    if own.ns < BUSY_NS or own.loads:
        return None
    if own.locked:
        return Blame("stuck-rank", (position,), own.place, "waits for a lock", 0.8)
    if own.holds_lock and own.blocked:  # one that computes may be at long work, as any other
        return Blame("stuck-rank", (position,), own.place, HOLDS_LOCK, 0.8)
    return None


def _locked_worker(facts: Facts, position: int) -> Standing | None:
    """A loader worker of a rank that has done nothing for long and waits for a lock in the user's code."""
    for pid in facts.ranks[position].workers:
        found = process_standing(facts, pid)
        if found.stack is None or found.ns < STALLED_NS or not found.blocked:
            continue
        idle = any(frame.file.endswith(IDLE_WORKER) for frame in found.stack.frames[-3:])
        if not idle and found.place is not None and found.locked:
            return found
    return None


def _who(facts: Facts, positions: tuple[int, ...]) -> str:
    return numbered(facts.numbers(positions))
