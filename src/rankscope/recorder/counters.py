"""What only the outside can see of a process: CPU starvation, faults, I/O, state, affinity; and of the machine."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

Reading = tuple[str, int, int]
"""(counter, value, pid it belongs to; 0: the machine or the job's cgroup)"""

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def process_states(pid: int) -> list[Reading]:
    """What has to be looked at often; [] once the process is gone.

    `cpu_ns` all threads; `minor_faults`, `major_faults`; `threads`; `stopped` 1 while SIGSTOP holds it; `blocked_io` 1
    while it waits for a disk; `main_cpu_ns`, `main_run_delay_ns` the main thread on and waiting for a CPU.
    """
    try:
        stat = _read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return []  # it has ended
    readings = [
        ("cpu_ns", (int(stat[11]) + int(stat[12])) * TICK_NS, pid),
        ("minor_faults", int(stat[7]), pid),
        ("major_faults", int(stat[9]), pid),
        ("threads", int(stat[17]), pid),
        ("stopped", int(stat[0] in "Tt"), pid),
        ("blocked_io", int(stat[0] == "D"), pid),
    ]
    with contextlib.suppress(OSError, ValueError):  # a kernel without scheduler statistics has no such file
        on_cpu, delay = _schedstat(f"/proc/{pid}/schedstat")
        readings += [("main_cpu_ns", on_cpu, pid), ("main_run_delay_ns", delay, pid)]
    return readings


def process_counters(pid: int) -> list[Reading]:
    """What adds up by itself and is dearer to read: a file for each thread; [] once the process is gone.

    `run_delay_ns` all threads waiting for a CPU; `voluntary_switches`, `involuntary_switches` of the main thread;
    `affinity` number of CPUs it may use; `read_bytes`, `write_bytes` to storage; `read_calls`.
    """
    readings: list[Reading] = []

    def add(name: str, value: int) -> None:
        readings.append((name, value, pid))

    root = f"/proc/{pid}"
    with contextlib.suppress(OSError, ValueError):  # no such file in a kernel without scheduler statistics
        add("run_delay_ns", sum(_schedstat(f"{root}/task/{task}/schedstat")[1] for task in os.listdir(f"{root}/task")))
    try:
        for line in _read(f"{root}/status").splitlines():
            if line.startswith("voluntary_ctxt"):
                add("voluntary_switches", int(line.split()[1]))
            elif line.startswith("nonvoluntary_ctxt"):
                add("involuntary_switches", int(line.split()[1]))
        add("affinity", len(os.sched_getaffinity(pid)))
        for line in _read(f"{root}/io").splitlines():
            name, value = line.split(": ")
            if name in ("read_bytes", "write_bytes"):
                add(name, int(value))
            elif name == "syscr":
                add("read_calls", int(value))
    except (OSError, ValueError, IndexError):
        pass  # it ended between two reads, or /proc does not show it; what was read so far is true
    return readings


def machine_counters() -> list[Reading]:
    """`cpus`; `machine_busy_ns` and `machine_steal_ns` of all CPUs together."""
    try:
        fields = [int(x) for x in _read("/proc/stat").split("\n", 1)[0].split()[1:]]
    except (OSError, ValueError):
        return []
    user, nice, system, _, _, irq, softirq, steal = fields[:8]
    busy = (user + nice + system + irq + softirq) * TICK_NS
    return [("machine_busy_ns", busy, 0), ("machine_steal_ns", steal * TICK_NS, 0), ("cpus", os.cpu_count() or 1, 0)]


def cgroup_counters(pid: int) -> list[Reading]:
    """`throttled_ns`, `throttled_periods` and `periods` of the CPU quota that `pid` runs under (cgroup v1 or v2)."""
    for folder in _cpu_cgroups(pid):
        try:
            values = dict(line.split() for line in _read(str(folder / "cpu.stat")).splitlines() if line.count(" ") == 1)
        except OSError:
            continue
        if "nr_throttled" not in values:
            continue
        throttled = int(values.get("throttled_time", 0)) or int(values.get("throttled_usec", 0)) * 1000
        return [
            ("throttled_ns", throttled, pid),
            ("throttled_periods", int(values["nr_throttled"]), pid),
            ("periods", int(values.get("nr_periods", 0)), pid),
        ]
    return []


def _cpu_cgroups(pid: int) -> list[Path]:
    folders = []
    try:
        lines = _read(f"/proc/{pid}/cgroup").splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            folders.append(Path("/sys/fs/cgroup") / path.lstrip("/"))
        elif "cpu" in controllers.split(","):
            folders.insert(0, Path("/sys/fs/cgroup/cpu") / path.lstrip("/"))
    return folders


@dataclass(frozen=True, slots=True)
class BusyProcess:
    pid: int
    name: str
    cpu_ns: int


def other_processes(own: set[int], before: dict[int, int]) -> tuple[list[BusyProcess], dict[int, int]]:
    """The busiest processes that are not in `own` since the call before, and the state for the next call.

    Their CPU time is `cpu_ns` since then; at most three, none below 20 ms, none that the scheduler runs when idle only.
    """
    now: dict[int, int] = {}
    busy = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) in own:
            continue
        pid = int(entry.name)
        try:
            text = _read(f"/proc/{pid}/stat")
        except OSError:
            continue
        fields = text.rsplit(")", 1)[1].split()
        now[pid] = (int(fields[11]) + int(fields[12])) * TICK_NS
        used = now[pid] - before.get(pid, now[pid])
        # One that runs when nobody else wants to gives its CPU up at once: whoever waits, waits for somebody else.
        if used >= 20_000_000 and int(fields[38]) != os.SCHED_IDLE:
            busy.append(BusyProcess(pid, text[text.find("(") + 1 : text.rfind(")")], used))
    return sorted(busy, key=lambda p: -p.cpu_ns)[:3], now


def _schedstat(path: str) -> tuple[int, int]:
    on_cpu, delay, _ = _read(path).split()
    return int(on_cpu), int(delay)


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
