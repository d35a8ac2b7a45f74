"""Sends and receives that do not meet: which rank waits for which, and what that one does instead."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.analysis.facts import Facts
from rankscope.analysis.standing import left_waiting
from rankscope.analysis.wavefront import Call, history

SEND = "send"
DEFAULT_PAIR = "group:default:"
"""In front of `sender>receiver`. In other groups ranks count anew, and are not followed here."""


@dataclass(frozen=True, slots=True)
class Unmet:
    """A rank in a send or receive that its peer has not made."""

    position: int
    peer: int
    call: Call
    met: int
    """Operations of that pair and direction that both have made."""


def unmet(facts: Facts) -> dict[int, Unmet]:
    """Position -> what it waits in, of each rank whose last call is a send or receive without its counterpart."""
    return facts.once(_unmet)


def cycle(facts: Facts, start: int) -> tuple[int, ...]:
    """The ranks that wait for one another in a ring, beginning from one; () where the chain ends elsewhere."""
    chain = [start]
    waits = unmet(facts)
    while chain[-1] in waits:
        peer = waits[chain[-1]].peer
        if peer in chain:
            return tuple(sorted(chain[chain.index(peer) :]))
        chain.append(peer)
    return ()


def last_waited_for(facts: Facts, start: int) -> Unmet | None:
    """The last link of the chain of ranks that wait for one another; None where it is a ring or there is none."""
    waits = unmet(facts)
    link, seen = waits.get(start), set[int]()
    while link is not None and link.peer in waits:
        if link.peer in seen:
            return None
        seen.add(link.peer)
        link = waits[link.peer]
    return link


def _unmet(facts: Facts) -> dict[int, Unmet]:
    by_rank = {rank.rank: position for position, rank in enumerate(facts.ranks)}
    counts: dict[tuple[int, str], int] = {}
    for position in range(facts.size):
        for call in history(facts, position):
            if call.pair:
                counts[position, call.group] = call.sequence + 1
    found = {}
    for position in range(facts.size):
        own = history(facts, position)
        last = own[-1] if own else None
        if last is None or not last.pair or not last.group.startswith(DEFAULT_PAIR):
            continue
        sender, _, receiver = last.group.removeprefix(DEFAULT_PAIR).partition(">")
        other = receiver if last.operation == SEND else sender
        peer = by_rank.get(int(other)) if other.isdigit() else None
        if peer is None or not left_waiting(facts, position):
            continue
        met = counts.get((peer, last.group), 0)
        if met <= last.sequence:
            found[position] = Unmet(position, peer, last, met)
    return found
