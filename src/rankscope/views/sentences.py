"""The sentences about a finding and a run that terminal and HTML share, so that both say the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rankscope.base.finding import Cost, Location
from rankscope.report.report import STEP_TIME, Clock, Exit, Lost, Overhead, Report, Run, first_problem
from rankscope.views.quantities import UNKNOWN, count_text, share_text, time_text

MEAN_TOLD = 1.5
"""Mean over median step time above which the median alone would hide where a third of the time goes."""


def ranks_text(ranks: Iterable[int], *, all_ranks: bool = False, most: int = 6) -> str:
    """`rank 1`, `ranks 0-3, 7`, `all ranks`; after `most` pieces `and 12 more`. Empty if there are none."""
    if all_ranks:
        return "all ranks"
    numbers = sorted(set(ranks))
    pieces = list(_runs(numbers))
    if not pieces:
        return ""
    text = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in pieces[:most])
    hidden = sum(last - first + 1 for first, last in pieces[most:])
    return f"rank{'s' * (len(numbers) > 1)} {text}" + (f" and {hidden} more" if hidden else "")


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            yield numbers[start], numbers[at - 1]
            start = at


def steps_text(first: int | None, last: int | None) -> str:
    """`since step 12, last seen at step 99`, `at step 12`; empty before the first step."""
    if first is None:
        return "" if last is None else f"until step {last}"
    if last is None:
        return f"since step {first}"
    return f"at step {first}" if first == last else f"since step {first}, last seen at step {last}"


def cost_text(cost: Cost) -> str:
    """What it costs and what fixing it would gain; empty where neither is known."""
    parts = []
    if cost.ms_per_step is not None and cost.share is not None:
        parts.append(f"{time_text(cost.ms_per_step)} ({share_text(cost.share)}) of every step")
    elif cost.share is not None:
        parts.append(f"{share_text(cost.share)} of the time")
    elif cost.ms_per_step is not None:
        parts.append(f"{time_text(cost.ms_per_step)} of every step")
    gain = gain_text(cost.recoverable_share)
    if gain:
        parts.append(f"fixing it would {gain}")
    return "; ".join(parts)


def gain_text(recoverable_share: float | None) -> str:
    """`make the run 1.4x faster`; empty where it is not known."""
    if recoverable_share is None or recoverable_share >= 1:
        return ""
    if recoverable_share < 0.005:
        return "gain less than 0.5 %"
    ratio = 1 / (1 - recoverable_share)
    if ratio < 1.1:
        return f"make the run {share_text(ratio - 1)} faster"
    return f"make the run {ratio:.1f}x faster" if ratio < 9.95 else f"make the run {ratio:.0f}x faster"


def sure_text(confidence: float) -> str:
    """`93 % sure`."""
    return f"{confidence * 100:.0f} % sure"


def place_text(location: Location, path: str | None = None) -> str:
    """`train.py:41 __getitem__`, with `path` in place of the file where it had to be shortened."""
    return f"{path or location.file}:{location.line} {location.function}".rstrip()


def run_text(run: Run) -> str:
    """`resnet · 2 ranks on 1 node · gloo · 500 steps · 3 min 12 s`, what is known of it."""
    parts = [run.name or run.id]
    if run.world_size is not None:
        on = f" on {counted(run.nodes, 'node')}" if run.nodes is not None else ""
        parts.append(counted(run.world_size, "rank") + on)
    if run.backend:
        parts.append(run.backend)
    if run.steps is not None:
        parts.append(counted(run.steps, "step"))
    if run.duration_s is not None:
        parts.append(time_text(run.duration_s * 1e3))
    return " · ".join(filter(None, parts))


def exits_text(exits: Iterable[Exit]) -> str:
    """How the processes ended that did not end well: `rank 1: SIGKILL, rank 0: exit code 1`."""
    bad = [one for one in exits if one.signal or one.code]
    shown = ", ".join(f"rank {one.rank}: {one.signal or f'exit code {one.code}'}" for one in bad[:6])
    return shown + (f" and {len(bad) - 6} more" if len(bad) > 6 else "")


def headline(report: Report) -> str:
    """What stands beside the verdict: the first finding, or why there is none."""
    first = first_problem(report)
    if report.verdict == "failed" and (first is None or first.kind == "performance"):
        return f"the run failed; {exits_text(report.run.exits) or 'no cause is shown'}"
    if first is not None:
        return first.title
    if report.verdict == "not-examined":
        return "the records at hand allow no verdict; this does not mean that the run is healthy"
    if report.verdict == "degraded":
        return "the run is degraded and no finding says why"
    steps = f" in {counted(report.step.steps, 'step')}" if report.step.steps else ""
    ranks = f" on {counted(report.run.world_size, 'rank')}" if report.run.world_size is not None else ""
    return f"nothing wrong found{steps}{ranks}"


def healthy_text(report: Report) -> str:
    """The second line of a healthy verdict: the step time, and how much was not looked at."""
    parts = [step_text(report)] if step_text(report) else []
    if report.not_examined:
        count = len(report.not_examined)
        parts.append(f"{counted(count, 'check')} could not be made (below)")
    return "; ".join(parts) or ("" if report.files else "no step time was measured")


def step_text(report: Report) -> str:
    """`a step takes 185 ms (p95 203 ms)`; empty where no step was timed. The mean is said where it is another."""
    step = report.step
    if step.median_ms is None:
        return ""
    others = [f"p95 {time_text(step.p95_ms)}"] if step.p95_ms is not None else []
    mean_ms = sum(line.ms for line in step.budget)
    if mean_ms > MEAN_TOLD * step.median_ms:
        others.insert(0, f"mean {time_text(mean_ms)}: a part of the steps takes far longer than the others")
    return f"a step takes {time_text(step.median_ms)}" + (f" ({', '.join(others)})" if others else "")


def clock_text(clock: Clock) -> str:
    """`clock: monotonic clock of the node, error up to 0.4 µs`."""
    if not clock.method:
        return "clock: ranks were not put on one clock"
    if clock.max_error_us is None:
        return f"clock: {clock.method}, error not bounded"
    if clock.max_error_us == 0:
        return f"clock: {clock.method}, no error"
    return f"clock: {clock.method}, error up to {time_text(clock.max_error_us / 1e3)}"


def measured_texts(report: Report) -> list[str]:
    """How it was measured; of files of other tools, what there is to say."""
    if report.files and report.overhead.budget is None and report.lost.records is None:
        if not any(file.used for file in report.files):
            return []
        clock = [clock_text(report.clock)] if report.clock.method else []
        return [*clock, "recorded by other tools, which do not say at what cost, nor what they lost"]
    return [clock_text(report.clock), overhead_text(report.overhead), lost_text(report.lost)]


def overhead_text(overhead: Overhead) -> str:
    """`overhead: 0.6 %, within the budget of 1.0 % (hooks 0.5 %, ...)`."""
    if overhead.share is None:
        known = overhead.method.startswith(UNKNOWN)
        return f"overhead: {overhead.method if known else UNKNOWN}" + (
            f" ({overhead.method})" if overhead.method and not known else ""
        )
    budget = ""
    if overhead.budget is not None:
        within = overhead.share <= overhead.budget
        budget = f", {'within' if within else 'above'} the budget of {share_text(overhead.budget)}"
    return f"overhead: {share_text(overhead.share)}{budget}" + (f" ({overhead.method})" if overhead.method else "")


def lost_text(lost: Lost) -> str:
    """`lost: no records`, `lost: 312 records (ring overrun)`."""
    if lost.records is None:
        return "lost: not counted" + (f" ({lost.why})" if lost.why else "")
    if lost.records == 0:
        return "lost: no records"
    return f"lost: {counted(lost.records, 'record')}" + (f" ({lost.why})" if lost.why else "")


def why_not_examined(report: Report) -> str:
    """Why there is no verdict, in one line."""
    if report.files and not any(file.used for file in report.files):
        return f"none of {counted(len(report.files), 'file')} could be used"
    reason = next((one.why for one in report.not_examined if one.detector == STEP_TIME), None)
    if reason is not None:
        return reason
    if not report.step.steps and not report.traces:
        return "no finished step was recorded"
    checks = report.not_examined
    return f"{counted(len(checks), 'check')} could not be made, none could" if checks else "no check could be made"


def advice_when_not_examined(report: Report) -> tuple[str, ...]:
    """What to do so that the next attempt can be examined."""
    if report.files and not any(file.used for file in report.files):
        return (
            "give files of a kind that rankscope reads: `rankscope diagnose --help` lists them",
            "or run it under observation: `rankscope run -- COMMAND`",
        )
    if report.files:
        return (
            "add the files of the other ranks, or of the kinds that are needed (below)",
            "or run it under observation, which records all of them: `rankscope run -- COMMAND`",
        )
    if report.run.world_size is None and any(one.detector == STEP_TIME for one in report.not_examined):
        return ()  # nothing was observed, and why says how to change that
    return ("let the run make more steps, at least 10, under `rankscope run -- COMMAND`",)


def counted(count: int, noun: str) -> str:
    """`1 step`, `1,200 steps`."""
    return f"{count_text(count)} {noun}{'' if count == 1 else 's'}"
