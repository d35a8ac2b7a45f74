"""From the facts and findings of a run to its report."""

from __future__ import annotations

import hashlib

import numpy as np

from rankscope.analysis.clock_check import check_clock
from rankscope.analysis.ends import all_ends, signal_name
from rankscope.analysis.engine import Examination, examine
from rankscope.analysis.facts import Facts
from rankscope.analysis.overhead import measure_overhead
from rankscope.analysis.slowdown import slowdown
from rankscope.analysis.tables import column
from rankscope.analysis.wording import numbered
from rankscope.base.manifest import Manifest
from rankscope.records.host import Goodbye
from rankscope.records.numerics import Sampling
from rankscope.records.process import LOWERED
from rankscope.report.build_model import build_model
from rankscope.report.report import (
    STEP_TIME,
    BudgetLine,
    Clock,
    Exit,
    Lost,
    NotExamined,
    Overhead,
    Report,
    Run,
    Step,
    Verdict,
    WhatIf,
    verdict_of,
)

SAMPLED = " stacks a second are sampled"
"""The end of the one part of `Process.level` that has a number: how often, after it was lowered."""
INTERRUPTED = (0, 130, -2, None)
"""Exit codes of a command that was not ended by an error of its own: done, Ctrl-C, still running."""


def build_report(facts: Facts, manifest: Manifest) -> Report:
    """Examine the run and say everything that is known about it."""
    examination = examine(facts)
    return Report(
        run=_run(facts, manifest),
        verdict=_verdict(facts, manifest, examination),
        findings=examination.findings,
        step=_step(facts),
        whatif=_whatif(facts),
        model=build_model(facts),
        not_examined=_not_examined(facts, manifest, examination),
        clock=_clock(facts),
        overhead=_overhead(facts, manifest),
        lost=_lost(facts),
    )


def _verdict(facts: Facts, manifest: Manifest, examination: Examination) -> Verdict:
    """A command that ended with an error has failed, whatever its steps looked like until then."""
    if facts.ranks and facts.all_steps and manifest.exit_code not in INTERRUPTED:
        return "failed"
    return verdict_of(examination.findings, examined=facts.enough)


def _run(facts: Facts, manifest: Manifest) -> Run:
    backend = next((r.process.backend for r in facts.ranks if r.process.backend), None)
    return Run(
        id=manifest.id,
        name=manifest.name,
        command=manifest.command,
        started=manifest.started,
        duration_s=manifest.duration_s,
        world_size=facts.world_size or None,
        nodes=1 if facts.ranks else None,
        backend=backend,
        steps=facts.all_steps if facts.ranks else None,
        fingerprint=_fingerprint(facts, manifest),
        exits=_exits(facts, manifest),
    )


def _fingerprint(facts: Facts, manifest: Manifest) -> str:
    """The same for runs that can be compared: command, size of the job and model, versions."""
    first = facts.ranks[0].process if facts.ranks else None
    parts = [
        " ".join(manifest.command),
        str(facts.world_size),
        str(manifest.cpus),
        str(first.parameters if first else 0),
        first.torch_version if first else "",
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _exits(facts: Facts, manifest: Manifest) -> tuple[Exit, ...]:
    """How each rank ended: as the recorder saw it; else as far as it said so itself, or, of a single process, what the
    command's exit code says."""
    code = manifest.exit_code
    if facts.world_size <= 1 and code is not None:
        name = signal_name(-code) if code < 0 else None
        return tuple(Exit(rank.rank, code if code >= 0 else None, name) for rank in facts.ranks)
    by_position = {end.position: end for end in all_ends(facts)}
    exits = []
    for position, rank in enumerate(facts.ranks):
        end = by_position.get(position)
        if end is None:
            exits.append(Exit(rank.rank, None))
        elif end.signal is not None:
            exits.append(Exit(rank.rank, None, signal_name(end.signal)))
        else:
            # Who said goodbye may still have left with a code of its own, when the command did not end with 0.
            said = 1 if end.exception else 0 if end.code is None and end.clean and code == 0 else None
            exits.append(Exit(rank.rank, said if end.code is None else end.code))
    return tuple(exits)


def _step(facts: Facts) -> Step:
    if not facts.ranks or not len(facts.steps) or facts.span_ns <= 0:
        return Step()
    steps = len(facts.steps)
    lines = [
        BudgetLine(phase, facts.ranks[position].rank, ns / steps / 1e6, ns / facts.span_ns)
        for (position, phase), ns in facts.charges.items()
    ]
    lines.sort(key=lambda line: -line.ms)
    return Step(
        median_ms=float(np.median(facts.step_ns)) / 1e6,
        p95_ms=float(np.percentile(facts.step_ns, 95)) / 1e6,
        steps=steps,
        budget=tuple(lines),
    )


def _whatif(facts: Facts) -> WhatIf:
    if not facts.enough:
        return WhatIf()
    result = slowdown(facts)
    return WhatIf(result.slowdown, result.by_rank, None, result.by_phase, result.worker_share, None)


def _not_examined(facts: Facts, manifest: Manifest, examination: Examination) -> tuple[NotExamined, ...]:
    missing = [NotExamined(x.detector, x.needs, x.why) for x in examination.not_examined]
    if not facts.enough:
        missing.insert(0, NotExamined(STEP_TIME, "finished steps", _why_no_steps(facts, manifest)))
    if facts.tables.skipped_steps:
        why = f"{facts.tables.skipped_steps} steps in the middle of the run were not read: the newest ones were"
        missing.append(NotExamined(STEP_TIME, "all steps", why))
    return (*missing, *_capture_problems(facts))


def _capture_problems(facts: Facts) -> tuple[NotExamined, ...]:
    """What rankscope itself could not do in the ranks."""
    found: dict[str, NotExamined] = {}
    seen = {rank.rank for rank in facts.ranks}
    unseen = [rank for rank in range(facts.world_size) if rank not in seen] if seen else []
    if unseen:
        why = (
            f"nothing was recorded of {numbered(unseen)} of {facts.world_size}: on another machine, started with "
            "another environment, or without room for its records in shared memory and on disk"
        )
        found["ranks"] = NotExamined("capture", "records of all ranks", why)
    rows = facts.tables.of(Goodbye)
    for rank in facts.ranks:
        for source, why in rank.process.sources_off.items():
            found.setdefault(source, NotExamined(f"source {source}", source, why))
        mine = rows[rows["process"] == rank.pid]
        count = int(column(mine, Goodbye, "swallowed")[-1]) if len(mine) else 0
        if count:
            texts = facts.tables.names.get(rank.pid, {}).values()
            last = next((text for text in texts if text.startswith("swallowed: ")), "")
            why = (
                f"{count} errors of rankscope were kept from the program; the last: {last.removeprefix('swallowed: ')}"
            )
            found.setdefault("capture", NotExamined("capture", "hooks without errors", why))
    left_out = facts.tables.of(Sampling)
    most = int(column(left_out, Sampling, "left_out").max()) if len(left_out) else 0
    if most:
        why = (
            f"{most} gradients and parameters of a step were not read: on a device, sparse, complex, quantised, of a "
            "class of their own, or beyond the first 1,500"
        )
        found["numerics"] = NotExamined("numerics", "statistics of all parameters", why)
    return tuple(found.values())


def _why_no_steps(facts: Facts, manifest: Manifest) -> str:
    """Why there is no step time to speak of; without it the reader knows only that there is none."""
    if not facts.ranks:
        return manifest.unobserved or "no process of the run was observed"
    steps = facts.all_steps
    by_rank = [facts.step_count(position) for position in range(facts.size)]
    if not steps and any(by_rank):
        idle = facts.numbers([position for position, count in enumerate(by_rank) if not count])
        return f"the ranks have no steps in common: {numbered(idle)} finished none" if idle else "no step is common"
    if not steps:
        return "no rank finished a step: no optimizer stepped and no model was called"
    return f"only {steps} {'step was' if steps == 1 else 'steps were'} finished by all ranks"


def _clock(facts: Facts) -> Clock:
    if not facts.ranks:
        return Clock()
    checked = check_clock(facts)
    return Clock(checked.method, checked.max_error_us)


def _overhead(facts: Facts, manifest: Manifest) -> Overhead:
    share, method = measure_overhead(facts)
    lowered = {part for rank in facts.ranks for part in rank.process.level.partition(LOWERED)[2].split(" and ") if part}
    rates = sorted((part for part in lowered if part.endswith(SAMPLED)), key=lambda part: float(part.split()[0]))
    lowered -= set(rates[1:])  # ranks may come to different ones
    if lowered:
        method += f"; to stay in the budget {', '.join(sorted(lowered))}"
    budgets = [rank.process.budget for rank in facts.ranks if rank.process.budget is not None]
    return Overhead(share, max(budgets, default=manifest.budget), method)


def _lost(facts: Facts) -> Lost:
    lost = facts.tables.lost
    why = ", ".join(f"{count} {reason}" for reason, count in sorted(lost.items()))
    return Lost(sum(lost.values()), why)
