"""One-line messages that report something: a table of patterns. What is only advice is in none of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rankscope.records.imported import log_lines as kinds
from rankscope.records.imported.log_lines import MONITORED_BARRIER, STUCK_WATCHDOG, LogEvent


@dataclass(frozen=True, slots=True)
class Rule:
    """Named groups of the pattern become the event's fields."""

    kind: str
    pattern: re.Pattern[str]
    name: str = ""


def _rule(kind: str, pattern: str, name: str = "", *, any_case: bool = False) -> Rule:
    return Rule(kind, re.compile(pattern, re.IGNORECASE if any_case else 0), name)


_OP: Final = (
    r"(?:SeqNum=(?P<number>\d+))?[^)]*?OpType=(?P<name>\w+)(?:[^)]*?NumelIn=(?P<elements>\d+))?"
    r"(?:[^)]*?Timeout\(ms\)=(?P<timeout_ms>\d+))?"
)
_GROUP: Final = re.compile(r"\[PG (?:ID )?(?P<group>\d+)[^\]]*?Rank (?P<rank>\d+)\]|\[Rank (?P<rank2>\d+)\]")
"""What the watchdog says in front: group, and rank within it."""
RULES: Final = (
    # Drivers and kernel
    _rule(kinds.DRIVER_ERROR, r"NVRM: Xid \((?:PCI:)?(?P<host_device>[^)]*)\): (?P<number>\d+)(?:, "
                              r"pid='?(?P<pid>\d+))?",
          "Xid"),
    _rule(kinds.DRIVER_ERROR, r"NVRM: .*(?:fallen off the bus|GPU .*lost)", "Xid"),
    _rule(kinds.DRIVER_ERROR, r"(?:pcieport|nvidia|AER|PCIe)\b.*(?:Uncorrect(?:ed|able) \((?:Fatal|Non-Fatal)\)"
          r"|severity=Uncorrected|aer_status.*fatal)", "PCIe"),
    _rule(kinds.DRIVER_ERROR, r"\[Hardware Error\].*(?:Uncorrected|Fatal|fatal|UC)|mce:.*Uncorrected"
          r"|EDAC .*\bUE\b (?!.*\b0 UE)", "machine check"),
    _rule(kinds.DRIVER_ERROR, r"amdgpu.*(?:uncorrectable|GPU reset begin|ring \w+ timeout|RAS.*poison|page fault)",
          "amdgpu"),
    _rule(kinds.DRIVER_ERROR, r"nvidia-peermem .*ERROR", "peer memory"),
    _rule(kinds.DRIVER_ERROR, r"(?:nvidia-nvswitch|NVSwitch).*(?:SXid \(.*?\): (?P<number>\d+), (?:Fatal|Non-fatal)"
          r"|fatal error)", "NVSwitch"),
    _rule(kinds.FABRIC_ERROR, r"mlx[45]_\w+.*(?:Port:? ?\d+ (?:Link )?DOWN|[Ll]ink [Dd]own"
          r"|Cable unplugged|health (?:compromised|counter)|"
          r"device's health compromised|fatal error|transport retry)|\bib\d+: link (?:is )?down|IB port \S+ .*(?:DOWN"
          r"|down)"
          r"|NET/IB : .*(?:Got async event : (?:port error|device fatal|local work queue catastrophic)"
          r"|async fatal event)"),
    _rule(kinds.FABRIC_ERROR, r"NET/IB ?:? .*(?:Got completion .*(?:error|status=|status )\s?(?P<number>\d+))"
          r"|local ACK timeout|transport retry counter exceeded|RETRY_EXC_ERR", "transfer"),
    _rule(kinds.MEMORY_KILL, r"Out of memory: Kill(?:ed)? process (?P<pid>\d+)[, ]+(?:UID \d+, )?\((?P<name>[^)]+)\)"),
    _rule(kinds.MEMORY_KILL, r"Memory cgroup out of memory: Kill(?:ed)? process (?P<pid>\d+)[, ]+(?:UID \d+, )?"
          r"\((?P<name>[^)]+)\)"),
    _rule(kinds.MEMORY_KILL, r"oom-kill:constraint=CONSTRAINT_\w+.*?(?:task=(?P<name>[^,]+),pid=(?P<pid>\d+)|$)"),
    _rule(kinds.MEMORY_KILL, r"oom_reaper: reaped process (?P<pid>\d+) \((?P<name>[^)]+)\)"),
    _rule(kinds.MEMORY_KILL, r"tasks? (?P<tasks>[\d,\-]+): Out Of Memory", "a task of Slurm"),
    _rule(kinds.MEMORY_KILL, r"(?:slurmstepd|srun|slurmd): error: .*(?:oom[-_ ]kill|[Oo]ut[ -]?[Oo]f[ -]?[Mm]emory"
          r"|memory limit)", "a task of Slurm"),
    _rule(kinds.MEMORY_KILL, r"\bOOMKilled\b(?!\W{0,4}false)", "a container"),
    _rule(kinds.CRASH, r"(?P<name>[\w./-]{1,64})\[(?P<pid>\d+)\]: segfault at|(?:traps: "
                       r")?(?P<name2>[\w./-]{1,64})\[(?P<pid2>\d+)\]"
          r" (?:general protection|trap invalid opcode)", "SIGSEGV"),
    _rule(kinds.CRASH, r"Fatal Python error: (?P<why>Segmentation fault|Bus error|Illegal instruction|Floating[- "
                       r"]point)"),
    _rule(kinds.CRASH, r"Caught signal (?P<number>4|7|8|11) \((?P<why>[^:)]*)"),
    _rule(kinds.CRASH, r"\*\*\* (?:Process received signal|SIG(?P<why>SEGV|BUS|ILL|FPE))"),
    _rule(kinds.CRASH, r"^(?!.*srun: error).{0,60}\b(?P<why>Segmentation fault|Bus error)\s+(?:\(core dumped\))"),
    # Launchers and schedulers
    _rule(kinds.EXIT, r"failed \(exitcode: (?P<number>-?\d+)\)(?: local_rank: (?P<local_rank>\d+))?"
          r"(?: \(pid: (?P<pid>\d+)\))?"),
    _rule(kinds.EXIT, r"srun: error: (?P<host>[\w.-]+): tasks? (?P<tasks>[\d,\-]+): (?P<why>Killed|Segmentation fault"
          r"|Bus error|Aborted|Terminated|Exited with exit code (?P<number>\d+))"),
    _rule(kinds.EXIT, r"(?:Primary job terminated|mpirun noticed that process rank (?P<rank>\d+) with PID (?P<pid>\d+)"
          r" on node (?P<host>\S+) exited on signal (?P<signal>\d+))"),
    _rule(kinds.EXIT, r"Signal (?P<signal>\d+) \(SIG\w+\) received by PID (?P<pid>\d+)"),
    _rule(kinds.EXIT, r"ProcessExitedException: process (?P<local_rank>\d{1,5}) terminated with "
          r"(?:signal (?P<signal>SIG\w+)|exit code (?P<number>\d+))"),
    _rule(kinds.EXIT, r"(?:--local_rank=(?P<local_rank>\d+).*)?exits with return code = (?P<number>-?\d+)"),
    _rule(kinds.EXIT, r"process (?P<pid>\d+) (?:terminated|died|was terminated|exited) (?:with|by|due to) "
          r"(?:signal (?P<signal>\d+|SIG\w+)|exit ?code:? (?P<number>[1-9]\d*))", any_case=True),
    _rule(kinds.EXIT, r"Process (?P<pid>\d+)? ?(?:terminated with|exited with) exit code (?P<number>[1-9]\d*)"),
    _rule(kinds.TOLD_TO_END, r"CANCELLED AT .*DUE TO (?P<name>TIME LIMIT|PREEMPTION|NODE FAILURE|[\w ]+?)(?:, SEE .*)?"
                             r"(?: \*\*\*|$)"),
    _rule(kinds.TOLD_TO_END, r"STEP \S+ ON \S+ CANCELLED"),
    _rule(kinds.TOLD_TO_END, r"Sending process (?P<pid>\d+) closing signal SIG\w+|Received (?:Signals\.)?(?:SIGTERM|15)"
          r"|got signal: (?:15|2)\b|SignalException"),
    # Timeouts of collectives
    _rule(kinds.WATCHDOG, r"Watchdog caught collective operation timeout: Work\w+\(" + _OP),
    _rule(kinds.WATCHDOG, r"(?:Found|Observed) .*collective.*timeout.*?Work\w+\(" + _OP),
    _rule(kinds.WATCHDOG, r"Caught collective operation timeout: Work\w+\(" + _OP),
    _rule(kinds.PROGRESS, r"failure detected by watchdog at work "
          r"sequence id: (?P<number>\d+).*?last enqueued work: (?P<enqueued>-?\d+), last completed work: "
          r"(?P<completed>-?\d+)"),
    _rule(kinds.PROGRESS, r"[Ll]ast enqueued (?:NCCL )?work: (?P<enqueued>-?\d+), last completed "
          r"(?:NCCL )?work: (?P<completed>-?\d+)"),
    _rule(kinds.MESSAGE, r"Ranks? (?P<missing>\d[\d, ]*) failed to pass monitoredBarrier", MONITORED_BARRIER),
    _rule(kinds.MESSAGE, r"(?P<text>(?:ProcessGroupNCCL's watchdog got stuck|Heartbeat monitor timed out).*)",
          STUCK_WATCHDOG),
    _rule(kinds.MESSAGE, r"(?P<text>op\.preamble\.length <= op\.nbytes.*)", "sizes of gloo"),
    _rule(kinds.MESSAGE, r"Detected mismatch between collectives on ranks.*", "collective mismatch"),
    # Others gone
    _rule(kinds.PEER_LOST, r"Connection closed by (?:remote )?peer|Connection reset by peer|Broken pipe|remote process "
          r"exited or there was a network error|ncclRemoteError|NCCL communicator (?:was aborted|encountered)"
          r"|Some NCCL operations have failed or timed out|taking the entire process down|ProcessGroupNCCL.*"
          r"(?:terminate|abort)|terminate called after throwing an instance of|failed to recv, got 0 bytes"),
    # Messages of programs that die without a traceback, or whose traceback says less
    _rule(kinds.MESSAGE, r"(?P<text>(?:torch\.(?:cuda\.)?OutOfMemoryError: )?(?:CUDA|HIP|NPU|XPU|MPS backend) out of "
                         r"memory"
          r"[.:]? Tried to allocate.*)", "out of memory"),
    _rule(kinds.MESSAGE, r"Cuda failure '?(?P<text>out of memory)", "out of memory"),
    _rule(kinds.MESSAGE, r"Assertion `?(?P<text>.*?(?:index out of bounds|srcIndex < srcSelectDimSize|"
          r"t >= 0 && t < n_classes|idx_dim >= 0 && idx_dim < index_size).*)", "index"),
    _rule(kinds.MESSAGE, r"(?P<text>Parameter(?:s| indices) which did not receive grad for rank (?P<rank>\d+): .*)",
          "unused"),
    _rule(kinds.MESSAGE, r"(?P<text>DataLoader worker \(pid\(?s?\)? ?(?P<pid>\d+).*?\) (?:is killed by signal|exited "
          r"unexpectedly).*)", "loader worker"),
    _rule(kinds.MESSAGE, r"(?P<text>Unexpected (?P<why>bus error|segmentation fault|floating-point exception) "
          r"encountered in worker.*)", "loader worker"),
    _rule(kinds.MESSAGE, r"(?P<text>Function '?\w+'? returned nan values in its.*)", "nan"),
    _rule(kinds.MESSAGE, r"(?:socket\.cpp:\d+\] )?(?P<text>(?:\[c10d\]|socket\.cpp|TCPStore).*(?:EADDRINUSE"
          r"|[Aa]ddress already in use"
          r"|timed out after|failed to listen|has failed to (?:listen|bind)).*)", "rendezvous"),
    _rule(kinds.MESSAGE, r"(?P<text>[Tt]imed out waiting for clients.*|The server socket has failed to listen.*)",
          "rendezvous"),
    _rule(kinds.MESSAGE, r"(?P<text>(?:unable to (?:write to|open|allocate) (?:file|shared memory).*</torch_"
                         r"|.*/dev/shm.*"
          r"No space left on device|.*No space left on device.*/dev/shm).*)", "shared memory"),
    _rule(kinds.MESSAGE, r"(?P<text>Error: failed to extend /dev/shm.*|Error while (?:creating|attaching to) "
          r"shared memory segment.*)", "shared memory"),
    _rule(kinds.MESSAGE, r"what\(\):\s+(?P<text>CUDA error: .*|.*uncorrectable.*)", "native"),
    _rule(kinds.MESSAGE, r"NCCL WARN (?P<text>(?!.*(?:MSCCL|deprecated|Could not find|Failed to open libibverbs|"
          r"plugin|falling back|Fallback|Call to ibv_|tuner)).*(?:Duplicate GPU|Mismatched collective|"
          r"unhandled system error|uncorrectable|Cuda failure|shm_open|/dev/shm|posix_fallocate).*)", "NCCL"),
)  # fmt: skip
_WORDS: Final = (
    "Xid",
        "NVRM", "Uncorrect", "uncorrect", "Hardware Error", "mce:", "EDAC", "amdgpu", "peermem", "nvswitch", "NVSwitch",
    "aer_status", "mlx", ": link", "IB port", "NET/IB", "ACK timeout", "retry counter", "RETRY_EXC", "emory",
    "oom", "OOM", "segfault", "traps:", "Fatal Python", "aught signal", "***", "core dumped", "exitcode", "exit code",
    "srun: error", "mpirun", "received by PID", "terminated", "CANCELLED", "closing signal", "SIGTERM", "got signal",
    "SignalException", "atchdog", "ollective", "ast enqueued", "monitoredBarrier", "by peer", "Broken pipe",
    "NCCL WARN", "NCCL comm", "NCCL oper", "ProcessGroupNCCL", "ncclRemote",
    "taking the entire", "terminate called", "failed to recv", "Assertion", "did not receive grad",
    "DataLoader worker", "in worker", "returned nan", "c10d", "socket.cpp", "TCPStore", "imed out", "failed to listen",
    "preamble", "eartbeat monitor", "return code =", "nplugged", "ink down", "ink Down",
    "/torch_", "/dev/shm", "what():", "network error", "died",
)  # fmt: skip


def triggers(block: str) -> re.Pattern[str] | None:
    """Finds, in a line of a block of lines, one of the words without which no rule matches; None where the block has
    none of them. To look for each word in a whole block takes half the time of looking for all in each line."""
    return _pattern(tuple(word for word in _WORDS if word in block))


@lru_cache(maxsize=1024)
def _pattern(words: tuple[str, ...]) -> re.Pattern[str] | None:
    return re.compile("|".join(re.escape(word) for word in words)) if words else None


ADVICE: Final = re.compile(
    r"^\W*(?:hint|note|tip|advice|suggestion)\b|[Ss]et(?:ting)? (?:TORCH_\w+|NCCL_\w+|PYTORCH_\w+|CUDA_\w+)="
    r"|FutureWarning"
    r"|DeprecationWarning|UserWarning|is deprecated|[Rr]etry(?:ing)?\b.{0,40}(?:attempt|in \d|\d ?s|\(\d|connect)"
    r"|will retry|recovered|reconnected|For debugging consider|find_unused_parameters=True was specified"
    r"|(?:handle|catch|avoid|prevent|in case of|protect against|if)\b.{0,30}(?:out of memory|OOM|timeout)",
)
_KEPT: Final = re.compile(r"NVRM: Xid|Watchdog caught|CUDA out of memory\. Tried|Out of memory: Kill|DataLoader "
                          r"worker \(pid")
"""Messages that are no advice although an advice follows them in the same line."""
MOST_TEXT: Final = 600
OFF_THE_BUS: Final = 79
"""The Xid that says the same."""
SIGNALS: Final = {
    "HUP": 1, "INT": 2, "ILL": 4, "Illegal instruction": 4, "ABRT": 6, "Aborted": 6, "BUS": 7, "Bus error": 7,
    "bus error": 7, "FPE": 8, "KILL": 9, "Killed": 9, "SEGV": 11, "Segmentation fault": 11, "TERM": 15,
    "Terminated": 15,
}  # fmt: skip


def events(message: str, number: int) -> Iterator[LogEvent]:
    """What one line reports: nothing, one thing, or one for each task that it names."""
    if ADVICE.search(message) and not _KEPT.search(message):
        return
    for rule in RULES:
        found = rule.pattern.search(message)
        if found is not None:
            yield from _made(rule, found, message, number)
            return


def _made(rule: Rule, found: re.Match[str], message: str, number: int) -> Iterator[LogEvent]:
    part = {key: value for key, value in found.groupdict().items() if value is not None}
    if rule.kind in (kinds.WATCHDOG, kinds.PROGRESS) and (head := _GROUP.search(message)) is not None:
        part |= {key: value for key, value in head.groupdict().items() if value is not None}
    why = part.get("why", "")
    code = _int(part.get("number"))
    if rule.name == "Xid" and code is None:
        code = OFF_THE_BUS
    elif "signal" in part:
        code = -(_int(part["signal"]) or SIGNALS.get(part["signal"].removeprefix("SIG"), 0)) or None
    elif rule.kind in (kinds.EXIT, kinds.CRASH) and why in SIGNALS:
        code = -SIGNALS[why] if rule.kind == kinds.EXIT else SIGNALS[why]
    event = LogEvent(
        kind=rule.kind,
        line=number,
        text=(part.get("text") or message).strip()[:MOST_TEXT],
        rank=_int(part.get("rank") or part.get("rank2")),
        local_rank=_int(part.get("local_rank")),
        pid=_int(part.get("pid") or part.get("pid2")),
        host=part.get("host", "") or part.get("host_device", ""),
        name=part.get("name") or part.get("name2") or rule.name,
        number=code,
        group=part.get("group", ""),
        elements=_int(part.get("elements")),
        enqueued=_int(part.get("enqueued")),
        completed=_int(part.get("completed")),
        timeout_ms=float(part["timeout_ms"]) if "timeout_ms" in part else None,
    )
    tasks = part.get("tasks") or part.get("missing")
    if not tasks:
        yield event
        return
    for task in _numbers(tasks):
        yield LogEvent(
            kind=event.kind, line=number, text=event.text, rank=task, host=event.host, name=event.name, number=code
        )


def _numbers(text: str) -> list[int]:
    """`0-2,5` as Slurm writes it; at most 4096 of them."""
    found: list[int] = []
    for part in text.replace(" ", "").split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and len(first) < 8:
            upto = int(last) if last.isdigit() and len(last) < 8 else int(first)
            found += range(int(first), min(upto, int(first) + 4095) + 1)
    return found[:4096]


def _int(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdigit() and len(text) < 19 else None
