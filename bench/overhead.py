"""What observation costs: the same training bare and observed, in turn, and TraceML on it for comparison.

    python bench/overhead.py            about 25 minutes
    python bench/overhead.py --quick    about 2 minutes, for a look; its numbers are noise

The bare and the observed job are alive together and take turns of a second (see turns.py). Where a process's memory
lies moves its speed too, for as long as it lives: therefore several pairs of jobs.

Ends with 1 where a number of docs/overhead.md is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from train import WARM_UP
from turns import take_turns

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "overhead.md"
RANKSCOPE = "rankscope"
TRACEML = "traceml-ai==0.5.0"
REPORTS, RUN_S = 3, 15.0
"""How many observed runs go on to their report, and for how long."""
LIMITS = {5: 0.03, 20: 0.01, 100: 0.01}
RECORD_LIMIT_NS = 300
AGREEMENT = 0.005


@dataclass
class Measured:
    """One size, one tool."""

    step_ms: float = 0.0
    """Of the bare job."""
    step: list[float] = field(default_factory=list)
    """How much longer than the bare job's a step is, for each pair of turns."""
    cpu: list[float] = field(default_factory=list)
    """The same of the ranks' CPU time."""
    reported: list[float] = field(default_factory=list)
    recorder: list[float] = field(default_factory=list)
    """CPU share of one core that the recorder took while it ran, start and end included."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 launch of 10 s, nothing written")
    parser.add_argument("--launches", type=int, default=3, help="pairs of jobs that take turns (default: 3)")
    parser.add_argument("--seconds", type=float, default=50.0, help="how long each pair does (default: 50)")
    parser.add_argument("--sizes", type=int, nargs="+", default=sorted(LIMITS), choices=sorted(LIMITS), metavar="MS")
    parser.add_argument("--no-traceml", action="store_true", help="leave TraceML out")
    args = parser.parse_args()
    launches, seconds = (1, 10.0) if args.quick else (args.launches, args.seconds)
    with tempfile.TemporaryDirectory(prefix="rankscope-bench-") as folder:
        work = Path(folder)
        traceml = None if args.no_traceml else install_traceml(work / "traceml")
        hooks = json.loads(output([sys.executable, str(HERE / "hooks.py"), "--json"]))
        results = {size: measure(size, launches, seconds, work, traceml) for size in args.sizes}
    text, missed = table(results, hooks)
    print(text)
    if not args.quick:
        write_page(text)
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed else 0


# -- runs --------------------------------------------------------------------------------------------------------


def measure(size: int, launches: int, seconds: float, work: Path, traceml: Path | None) -> dict[str, Measured]:
    batch = int(calibrate(size, work))
    arguments = ["--size", str(size), "--batch", str(batch)]
    tools = {RANKSCOPE: rankscope_command(work)}
    if traceml is not None:
        tools[TRACEML] = traceml_command(traceml, work)
    results = {tool: Measured() for tool in tools}
    for number in range(launches):
        for tool, start in tools.items():
            bare, observed = work / f"bare-{number}", work / f"observed-{number}"
            commands = torchrun([*arguments, "--out", str(bare)]), start([*arguments, "--out", str(observed)])
            turns = take_turns(list(zip(commands, (bare, observed), strict=True)), seconds, WARM_UP, size)
            one = results[tool]
            one.step_ms = statistics.median(t.step for t in turns[0]) / 1e6
            step = [b.step / a.step - 1 for a, b in zip(*turns, strict=True)]
            cpu = [b.cpu / a.cpu - 1 for a, b in zip(*turns, strict=True)]
            one.step += step
            one.cpu += cpu
            medians = f"step {statistics.median(step):+.2%}, CPU {statistics.median(cpu):+.2%}"
            print(f"{size:4} ms, pair {number + 1} of jobs, {tool:17} {len(step)} turns: {medians}", flush=True)
        if number < REPORTS:
            ask_for_a_report(arguments, size, work, results[RANKSCOPE])
    return results


def ask_for_a_report(arguments: list[str], size: int, work: Path, into: Measured) -> None:
    """One observed run by itself, for what its report says of the overhead."""
    report = work / "report.json"
    steps = WARM_UP + max(60, int(RUN_S * 1000 / size))
    start = rankscope_command(work, "--report-json", str(report))
    output(start([*arguments, "--steps", str(steps), "--out", str(work / "alone")]))
    share = json.loads(report.read_text())["overhead"]["share"]
    into.reported.append(float("nan") if share is None else share)
    into.recorder.append(recorder_share(work / "runs"))
    shutil.rmtree(work / "runs")


def calibrate(size: int, work: Path) -> str:
    out = work / "batch"
    output(torchrun(["--size", str(size), "--calibrate", str(size), "--out", str(out)]))
    return out.read_text()


def torchrun(arguments: list[str]) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [*launcher, str(HERE / "train.py"), *arguments]


def rankscope_command(work: Path, *options: str) -> Callable[[list[str]], list[str]]:
    run = [sys.executable, "-m", "rankscope", "run", "--no-dashboard", "--runs-dir", str(work / "runs"), *options, "--"]
    return lambda arguments: [*run, *torchrun(arguments)]


def traceml_command(traceml: Path, work: Path) -> Callable[[list[str]], list[str]]:
    def command(arguments: list[str]) -> list[str]:
        return [
            str(traceml / "bin" / "traceml"), "run", "--mode", "summary", "--nproc-per-node", "2",
            "--run-name", f"bench-{time.monotonic_ns()}", "--logs-dir", str(work / "traceml-logs"),
            str(HERE / "train.py"), "--args", *arguments, "--traceml",
        ]  # fmt: skip

    return command


def output(command: list[str]) -> str:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    for _ in range(2):  # a rank may be aborted by gloo at its end, on a busy machine, observed or not
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        if not done.returncode:
            return done.stdout
    said = f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    raise SystemExit(f"{' '.join(command)}\nended with {done.returncode}:\n{said}")


def recorder_share(runs: Path) -> float:
    """CPU of the recorder per time between its first and last own reading, from the run's store."""
    from rankscope.base.rundir import RunDir
    from rankscope.store.open import open_store

    folder = max((p for p in runs.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime)
    with open_store(RunDir(folder).store) as store:
        rows = store.query(
            "SELECT a AS cpu, time_ns FROM slots AS s JOIN payloads AS p ON s.process = p.process AND s.name = p.id"
            " WHERE s.kind = 43 AND p.kind = 1 AND p.text = 'recorder_cpu_ns' ORDER BY time_ns"
        ).to_pylist()
    if len(rows) < 2:
        return float("nan")
    return float((rows[-1]["cpu"] - rows[0]["cpu"]) / (rows[-1]["time_ns"] - rows[0]["time_ns"]))


def install_traceml(folder: Path) -> Path | None:
    """TraceML in an environment of its own that sees this one's torch; None, with a line, where it cannot be had."""
    try:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True)
        (site,) = (folder / "lib").glob("python*/site-packages")
        (site / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
        subprocess.run(
            [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", TRACEML],
            check=True, capture_output=True, timeout=300,
        )  # fmt: skip
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        print(f"{TRACEML} is left out: it could not be installed ({error})", file=sys.stderr)
        return None
    return folder


# -- tables ------------------------------------------------------------------------------------------------------


def table(results: dict[int, dict[str, Measured]], hooks: dict[str, float]) -> tuple[str, list[str]]:
    """The page's tables, and a line for each number that is missed."""
    missed = []
    lines = [
        f"Measured {time.strftime('%Y-%m-%d')} on {os.cpu_count()} CPUs, 2 gloo ranks, one thread a rank.",
        "Each figure is the median over pairs of turns, in brackets its quartiles and standard error.",
        "",
        "| step | observed by | step time | rank CPU | report says | recorder, of one core | limit |",
        "|---|---|---|---|---|---|---|",
    ]
    for size, tools in results.items():
        for tool, one in tools.items():
            step, step_text = more(one.step)
            cpu, cpu_text = more(one.cpu)
            reported = recorder = limit = "—"
            if tool == RANKSCOPE:
                said = statistics.median(one.reported)
                reported, recorder = f"{said:.2%}", f"{statistics.median(one.recorder):.2%}"
                limit = f"{LIMITS[size]:.0%}"
                for what, value in (("step time", step), ("rank CPU", cpu)):
                    if value > LIMITS[size]:
                        missed.append(f"{what} at {size} ms: {value:+.2%}, limit {LIMITS[size]:.0%}")
                if abs(said - step) > AGREEMENT:
                    missed.append(f"the report says {said:.2%} at {size} ms, from outside it is {step:+.2%}")
            cells = (f"{one.step_ms:.1f} ms", tool, step_text, cpu_text, reported, recorder, limit)
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| hook | CPU time |", "|---|---|"]
    lines += [f"| {name} | {cost / 1000:.2f} µs |" for name, cost in hooks.items()]
    if hooks["record"] > RECORD_LIMIT_NS:
        missed.append(f"a record costs {hooks['record']:.0f} ns, limit {RECORD_LIMIT_NS} ns")
    return "\n".join(lines), missed


def more(ratios: list[float]) -> tuple[float, str]:
    """(how much more, the same in words: quartiles of the turns, and the standard error of the median)."""
    low, middle, high = statistics.quantiles(ratios, n=4)
    # Of a median: 1.25 standard deviations, here from the quartiles, over the root of the number.
    error = 1.25 * (high - low) / 1.35 / len(ratios) ** 0.5
    return middle, f"{middle:+.2%} ({low:+.2%} to {high:+.2%}; ± {error:.2%})"


def write_page(text: str) -> None:
    """Put the tables between the markers of docs/overhead.md."""
    begin, end = "<!-- begin: make bench -->", "<!-- end: make bench -->"
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
