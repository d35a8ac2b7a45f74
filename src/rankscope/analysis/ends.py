"""How each rank ended, in order of time, and whether its end is the fault or follows from another rank's."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import Place, is_user, parse_place
from rankscope.analysis.tables import Rows, column
from rankscope.records.collective import Collective
from rankscope.records.host import CaughtException, Fault, Goodbye, ProcessEnd
from rankscope.records.training import Step

LOST_PEER = re.compile(
    r"connection (closed|reset|refused)|broken pipe|timed out|timeout|time-out|peer .*(died|closed|lost)|"
    r"ncclremoteerror|ncclsystemerror|communicator (was )?aborted|watchdog|unexpected close",
    re.IGNORECASE,
)
"""In the text of an error: the rank was left alone by a peer. Whoever left it is the one to look at."""
RENDEZVOUS = re.compile(
    r"EADDRINUSE|address already in use|failed to (listen|bind)|rendezvous|DistStoreError|waiting for clients|"
    r"could not connect to|client socket has (failed|timed out)|name or service not known|"
    r"environment variable \w+ expected",
    re.IGNORECASE,
)
"""In the text of an error: the processes never formed a group."""
STOPPED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals by which a launcher or a user ends a rank."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of one rank's process."""

    position: int
    time_ns: int
    """When its exception came, else when the process was gone."""
    code: int | None
    """Exit code; None: ended by a signal, or nobody saw it."""
    signal: int | None
    exception: str
    """`Type: message` of the exception that ended it; empty: none."""
    place: Place | None
    """Of the exception: the innermost line of the user's."""
    step: int
    """Steps that it had finished."""
    clean: bool = False
    """It said goodbye."""

    @property
    def failed(self) -> bool:
        """Whether it ended in another way than by coming to the end of its program."""
        return bool(self.exception) or bool(self.code) or self.signal is not None

    @property
    def follows(self) -> bool:
        """Whether it ended because of somebody else: told to, or left alone in a collective."""
        if self.exception.startswith("KeyboardInterrupt"):
            return True
        if self.exception:
            # Who waited in vain for others to come at all was not left by them.
            return bool(LOST_PEER.search(self.exception)) and not self.no_group
        return self.signal in STOPPED

    @property
    def no_group(self) -> bool:
        """Whether it never got as far as a process group."""
        return not self.step and bool(RENDEZVOUS.search(self.exception))

    @property
    def timed_out(self) -> bool:
        """Whether it waited for its peers as long as it was told to."""
        return bool(re.search(r"timed out|time-?out", self.exception, re.IGNORECASE))

    @property
    def how(self) -> str:
        """`SIGSEGV`, `exit code 9`, `ValueError: no score`, `no exit code was seen`."""
        if self.exception:
            return self.exception
        if self.signal is not None:
            return signal_name(self.signal)
        return f"exit code {self.code}" if self.code is not None else "no exit code was seen"


def signal_name(number: int) -> str:
    """`SIGKILL`; of a real-time signal, which has no name of its own, its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ends(facts: Facts) -> tuple[End, ...]:
    """The ends of all ranks that have ended, the first one first, but for those that we brought about."""
    stopped_ns = facts.tables.stopped_ns
    return tuple(end for end in all_ends(facts) if not stopped_ns or end.time_ns <= stopped_ns)


def all_ends(facts: Facts) -> tuple[End, ...]:
    """The same with the ends of ranks that we have ended because they hung."""
    return facts.once(_ends)


def _ends(facts: Facts) -> tuple[End, ...]:
    gone, goodbyes = facts.tables.of(ProcessEnd), facts.tables.of(Goodbye)
    found = []
    for position, rank in enumerate(facts.ranks):
        said = goodbyes[goodbyes["process"] == rank.pid]
        seen = gone[column(gone, ProcessEnd, "of") == rank.pid]
        if len(said) or len(seen):
            found.append(_end(facts, position, said, seen))
    return tuple(sorted(found, key=lambda end: end.time_ns))


def _end(facts: Facts, position: int, said: Rows, seen: Rows) -> End:
    pid = facts.ranks[position].pid
    exception, place, time_ns = "", None, 0
    if len(said):
        last = said[-1:]
        exception = facts.tables.name(pid, int(column(last, Goodbye, "exception")[0]))
        place = facts.place(position, int(column(last, Goodbye, "place")[0]))
        time_ns = int(column(last, Goodbye, "raised_ns")[0]) if exception else int(last["time_ns"][0])
    code = number = None
    if len(seen):
        last = seen[-1:]
        time_ns = time_ns or int(last["time_ns"][0])
        if column(last, ProcessEnd, "known")[0]:
            status = int(column(last, ProcessEnd, "status")[0])
            number = status & 0x7F or None
            code = None if number else status >> 8
    if not exception and (code or (code is number is None and _starter_raised(facts, position))):
        exception, place, time_ns = _caught_last(facts, position, time_ns)
    return End(position, time_ns, code, number, exception, place, _steps(facts, pid), bool(len(said)))


def fault_place(facts: Facts, pid: int, libraries: tuple[str, ...]) -> Place | None:
    """The innermost line of the user's in what the fault handler wrote of a process; None: it wrote nothing."""
    faults = facts.tables.of(Fault)
    for row in faults[column(faults, Fault, "of") == pid]:
        place = parse_place(facts.tables.name(int(row["process"]), int(row["name"])))
        if is_user(place.file, libraries):
            return place
    return None


def _starter_raised(facts: Facts, position: int) -> bool:
    """Whether the process that started the rank ended with an exception: `mp.spawn` raises what a rank has raised."""
    rows = facts.tables.of(Goodbye)
    mine = rows[rows["process"] == facts.ranks[position].process.parent]
    return bool(len(mine)) and bool(column(mine[-1:], Goodbye, "exception")[0])


def _caught_last(facts: Facts, position: int, ended_ns: int) -> tuple[str, Place | None, int]:
    """The exception that a process with an exit code caught last, with its place and time, where it has done nothing
    more since: launchers and command lines catch what their programs raise, tell of it, and leave."""
    pid = facts.ranks[position].pid
    mine = [rows[rows["process"] == pid] for rows in map(facts.tables.of, (CaughtException, Collective, Step))]
    caught, *work = mine
    if not len(caught):
        return "", None, ended_ns
    last = caught[-1:]
    if any(len(rows) and rows["time_ns"].max() > last["time_ns"][0] for rows in work):
        return "", None, ended_ns
    place = facts.place(position, int(column(last, CaughtException, "site")[0]))
    return facts.tables.name(pid, int(last["name"][0])), place, int(last["time_ns"][0])


def _steps(facts: Facts, pid: int) -> int:
    return int((facts.tables.of(Step)["process"] == pid).sum())
