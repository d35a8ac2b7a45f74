"""Each event's cause and role; what the job survived is none."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from rankscope.analysis.imported.logs.digest import Job, Seen
from rankscope.analysis.imported.logs.verdicts import (
    BEGINS,
    FOLLOWS,
    LOG_OF_NODE,
    NO_ERROR,
    UNSURE,
    Verdict,
    of_error,
)
from rankscope.analysis.imported.logs.xids import AFTER, NOTE, PROGRAM, xid
from rankscope.records.imported import log_lines as kinds
from rankscope.records.imported.log_lines import LogEvent

TOLD: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FLUSHED: Final = 5
"""IBV_WC_WR_FLUSH_ERR: the other end of a queue has gone, or an earlier transfer failed."""
OTHERS_GO_ON: Final = 3
"""Lines of progress after an error that show that the job survived it: ranks that wait for a dead one may still end the
step they are in."""


SAY_BETTER: Final = ("index-out-of-range", "hardware-error", "out-of-memory", "shared-memory-exhausted")


@dataclass(frozen=True, slots=True)
class Judged:
    seen: Seen
    verdict: Verdict

    @property
    def kernel(self) -> bool:
        return self.seen.event.kind in (kinds.DRIVER_ERROR, kinds.FABRIC_ERROR, kinds.MEMORY_KILL)


def judged(job: Job) -> list[Judged]:
    """Every event but timeouts of collectives, with what it says; without those that the job survived."""
    told = {s.event.pid for s in job.seen if s.event.kind == kinds.TOLD_TO_END} - {None}
    found = [
        Judged(one, verdict)
        for one in job.seen
        if one.event.kind not in (kinds.WATCHDOG, kinds.PROGRESS)
        and not survived(one.event)
        and (verdict := _verdict(one.event, told)).role != NO_ERROR
    ]
    return _one_fault_each(found)


def survived(event: LogEvent) -> bool:
    """Whether training went on from where it was, or began after an error before the first step."""
    before, after = event.step_before, event.step_after
    if after is None or event.kind == kinds.TOLD_TO_END:
        return False
    if before is None:
        soft = event.kind in (kinds.EXCEPTION, kinds.PEER_LOST) and not event.to_the_top
        return soft and "DataLoader worker" not in event.text and event.progress_after >= OTHERS_GO_ON
    if event.kind == kinds.EXCEPTION and after == before + 1 and not event.to_the_top:
        return True
    # Progress may be written every so many steps; a restart goes back, or leaves a gap.
    return before < after and event.progress_after >= OTHERS_GO_ON and event.kind != kinds.EXIT


def _verdict(event: LogEvent, told: AbstractSet[int | None]) -> Verdict:
    kind = event.kind
    if kind == kinds.MESSAGE and event.name == kinds.MONITORED_BARRIER:
        return Verdict("missing-collective", UNSURE, 0.75, "did not come to a monitored barrier", (
            "look at what this rank did then: its own log, `py-spy dump` of its process",))  # fmt: skip
    if kind == kinds.MESSAGE and event.name == kinds.STUCK_WATCHDOG:
        return Verdict("stuck-rank", UNSURE, 0.5, "a call of its device's driver does not return, or a thread keeps "
                                                  "Python's lock", (
            "take its native stacks (`py-spy dump --native`, `gdb`): who holds the lock, who is in the driver",
            LOG_OF_NODE))  # fmt: skip
    if kind in (kinds.EXCEPTION, kinds.MESSAGE):
        return of_error(event.name if kind == kinds.EXCEPTION else "", event.text, in_loader=event.in_loader)
    if kind == kinds.DRIVER_ERROR:
        return _driver(event)
    if kind == kinds.FABRIC_ERROR:
        # A transfer that got no answer: the link, or a peer that had ended.
        if event.number == FLUSHED and event.name == "transfer":
            return Verdict("network-error", FOLLOWS, 0.4, f"lost a peer: {event.text[:120]}", (
                "look for the rank that ended first",))  # fmt: skip
        sure = event.name != "transfer"
        link = "Link down" in event.text or "unplugged" in event.text
        if link:  # a port without a cable says so too
            return Verdict("network-error", BEGINS, 0.6, f"a link went down: {event.text[:120]}", (
                "look whether the job used this port, and whether it came up again (`ibstat`, `ip link`)",),
                severity="warning")  # fmt: skip
        return Verdict("network-error", BEGINS if sure else UNSURE, 0.85 if sure else 0.5,
                       f"the network failed: {event.text[:120]}",
                       ("look at the port's state and error counters (`ibstat`, `perfquery`) on that "
                        "node",))  # fmt: skip
    if kind == kinds.MEMORY_KILL:
        who = f"{event.name} (process {event.pid})" if event.pid is not None else event.name or "a process"
        ours = event.rank is not None or not event.name or event.name.startswith(("python", "pt_", "torch", "a "))
        return Verdict(
            "out-of-memory", BEGINS, 0.6 if not ours else 0.9 if event.name else 0.7, f"host memory ran out: {who} "
                                                                                      f"was killed", (
            "fewer loader workers, a smaller dataset in memory, or a larger memory limit of the job",
            "watch the host's memory in a run under `rankscope run`"),
            severity="critical" if ours else "warning")  # fmt: skip
    if kind == kinds.CRASH:
        name = event.name if event.name not in ("", "SIGSEGV") else ""
        what = f"{name} died in native code: " if name else "died in native code: "
        return Verdict("dead-rank", BEGINS, 0.85, what + event.text[:110], (
            "run it with PYTHONFAULTHANDLER=1 for the Python stack, and keep the core file for the native "
            "one",))  # fmt: skip
    if kind == kinds.EXIT:
        return _exit(event, told)
    if kind == kinds.TOLD_TO_END and event.name.strip() in ("TIME LIMIT", "PREEMPTION", "NODE FAILURE"):
        why = event.name.strip().lower()
        return Verdict("dead-rank", UNSURE, 0.8, f"the scheduler ended the job ({why})", (
            "ask for more time, or save a checkpoint when the scheduler warns (`#SBATCH "
            "--signal`)",), severity="warning")  # fmt: skip
    if kind == kinds.PEER_LOST:
        lost = of_error("", event.text, in_loader=False)
        if lost.role == NO_ERROR:
            return lost
    return Verdict("dead-rank", FOLLOWS, 0.3, event.text[:120], ("look for the rank that ended first",))


def _driver(event: LogEvent) -> Verdict:
    advice: tuple[str, ...] = ("read the device's error counters (`nvidia-smi -q`); take the node out if it comes "
                               "again",)
    if event.name != "Xid":
        unsure = event.name == "peer memory"
        return Verdict("hardware-error", BEGINS, 0.5 if unsure else 0.85, f"{event.name}: {event.text[:120]}", advice,
                       severity="warning" if unsure else "critical", component=event.name)  # fmt: skip
    known = xid(event.number)
    where = f" on {event.host}" if event.host else ""
    what = f"the driver reports Xid {event.number}{where}: {known.meaning}"
    if event.number is None:
        what = f"the driver reports: {event.text[:110]}"
    role = FOLLOWS if known.kind == AFTER else UNSURE if known.kind == PROGRAM else BEGINS
    if known.kind == PROGRAM:
        advice = ("run the program under compute-sanitizer: with this number the program itself is the usual reason",
                  "if other programs get it on this device too, take the node out")  # fmt: skip
    return Verdict("hardware-error", role, 0.7 if known.kind == PROGRAM else 0.9, what, advice,
                   severity="warning" if known.kind == NOTE else
                       "critical", component=f"Xid {event.number}")  # fmt: skip


def _exit(event: LogEvent, told: AbstractSet[int | None]) -> Verdict:
    code = event.number if event.number is not None else 1
    code = 128 - code if 128 < code < 165 else code
    pid = f" (process {event.pid})" if event.pid is not None else ""
    advice = ("look at its own output before this line", LOG_OF_NODE)
    if code >= 0:
        role = UNSURE if code else NO_ERROR
        return Verdict("dead-rank", role, 0.5, f"ended with exit code {code}{pid}", advice)
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if -code in TOLD or (event.pid is not None and event.pid in told):
        return Verdict("dead-rank", FOLLOWS, 0.3, f"was ended by {name}{pid}", advice)
    role = UNSURE if name == "SIGABRT" else BEGINS
    return Verdict("dead-rank", role, 0.85, f"was ended by {name}{pid}", advice)


def _one_fault_each(found: Sequence[Judged]) -> list[Judged]:
    """Names that are one fault's: the memory killer's and the exit that it caused; a message beside its traceback."""
    killed = [j for j in found if j.seen.event.kind == kinds.EXIT and j.verdict.what.startswith("was ended by SIGKILL")]
    kills = [j for j in found if j.seen.event.kind == kinds.MEMORY_KILL and j.verdict.severity == "critical"]
    crashes = [j for j in found if j.seen.event.kind == kinds.CRASH]
    specific = {j.seen.rank for j in found if j.verdict.role == BEGINS and j.seen.event.kind == kinds.EXCEPTION}
    own = {j.seen.rank for j in killed if j.seen.rank is not None}
    lost = {j.seen.rank for j in found if j.verdict.role == FOLLOWS and j.seen.event.kind == kinds.EXCEPTION} - {None}
    worker = {j.seen.rank for j in found if "is killed by signal" in j.seen.event.text}
    made = []
    for j in found:
        seen = j.seen
        if j in kills and seen.rank is None and len(own) == 1:
            seen = replace(seen, rank=next(iter(own)))
        verdict = j.verdict
        if j in killed and kills and (seen.rank in own):
            verdict = replace(verdict, role=FOLLOWS)
        if seen.event.kind == kinds.EXIT and crashes and "SIGSEGV" in verdict.what:
            verdict = replace(verdict, role=FOLLOWS)
        if seen.event.kind == kinds.CRASH and seen.rank is None:
            ranks = {k.seen.rank for k in found if k.seen.event.kind == kinds.EXIT and "SIGSEGV" in k.verdict.what}
            seen = replace(seen, rank=next(iter(ranks))) if len(ranks) == 1 else seen
        if verdict.cause in ("rank-exception", "network-error") and _said_better(j, found):
            verdict = replace(verdict, role=FOLLOWS)
        own_error = seen.event.kind == kinds.EXIT and seen.rank in specific and "KILL" not in verdict.what
        if own_error and verdict.role == BEGINS:
            verdict = replace(verdict, role=FOLLOWS)
        if verdict.role == UNSURE and seen.event.kind == kinds.EXIT and seen.rank in lost:
            verdict = replace(verdict, role=FOLLOWS)  # it ended because it had lost its peers
        if "exited unexpectedly" in seen.event.text and seen.rank in worker:
            verdict = replace(verdict, role=FOLLOWS)
        made.append(Judged(seen, verdict))
    return made


def _said_better(one: Judged, found: Sequence[Judged]) -> bool:
    """A device error whose reason another line of the same rank names (`device-side assert` and its assertion)."""
    if not any(word in one.seen.event.text for word in ("CUDA error", "HIP error", "unhandled system error")):
        return False
    return any(
        k.verdict.role == BEGINS and k.verdict.cause in SAY_BETTER
        and k.seen.rank in (one.seen.rank, None)
        for k in found
    )  # fmt: skip
