"""What observation costs: the same training bare and observed, in turn, and TraceML on it for comparison.

    python bench/overhead.py            about 20 minutes
    python bench/overhead.py --quick    about 2 minutes, for a look; its numbers are noise

Two ways: blocks of steps in one process, bare and observed in turn, and whole runs in turn. Two whole runs of the same
bare program differ by up to a tenth in their step time on a small machine, by where their memory lies and how their
connections came to be; only blocks in one process tell a difference of one percent. The recorder, which has a process
of its own, is not in them: its CPU time is added.
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
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from train import WARM_UP

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "overhead.md"
RANKSCOPE = "rankscope"
TRACEML = "traceml-ai==0.5.0"
BLOCK_S = 1.0
LIMITS = {5: 0.03, 20: 0.01, 100: 0.01}
RECORD_LIMIT_NS = 300
STEADY_HEAP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 32), "MALLOC_TOP_PAD_": str(1 << 26)}
"""glibc gives memory back to the system and asks for it again, in each step or never, by where a few bytes happen to
lie: it makes two bare runs differ more than any observation does. So it keeps what it has, bare and observed."""
AGREEMENT = 0.005


@dataclass
class Measured:
    """One size. Ratios: how much more than bare."""

    step_ms: float = 0.0
    """Of bare blocks."""
    step: list[float] = field(default_factory=list)
    """Step time of observed blocks over that of their bare neighbours."""
    cpu: list[float] = field(default_factory=list)
    """The same of the CPU time of the whole rank process."""
    early_step: list[float] = field(default_factory=list)
    early_cpu: list[float] = field(default_factory=list)
    """The same two in the first 20 s of a process, when more stacks are sampled."""
    null: list[float] = field(default_factory=list)
    """Step time of bare blocks over that of the bare blocks next to them: what nothing looks like."""
    runs: dict[str, list[float]] = field(default_factory=dict)
    """Median step times of whole runs, in ms: bare, rankscope, TraceML."""
    reported: list[float] = field(default_factory=list)
    recorder: list[float] = field(default_factory=list)
    """CPUs that the recorder took while it ran, start and end included."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few blocks and one run each, nothing written")
    parser.add_argument("--pairs", type=int, default=60, help="pairs of blocks of a second (default: 60)")
    parser.add_argument("--runs", type=int, default=2, help="whole runs of each kind (default: 2)")
    parser.add_argument("--seconds", type=float, default=15.0, help="training time of a whole run (default: 15)")
    parser.add_argument("--sizes", type=int, nargs="+", default=sorted(LIMITS), choices=sorted(LIMITS), metavar="MS")
    parser.add_argument("--no-traceml", action="store_true", help="leave TraceML out")
    args = parser.parse_args()
    if args.quick:
        args.pairs, args.runs, args.seconds = 10, 1, 5.0
    with tempfile.TemporaryDirectory(prefix="rankscope-bench-") as folder:
        work = Path(folder)
        traceml = None if args.no_traceml else install_traceml(work / "traceml")
        hooks = json.loads(output([sys.executable, str(HERE / "hooks.py"), "--json"]))
        results = {size: measure(size, args, work, traceml) for size in args.sizes}
    text, missed = table(results, hooks)
    print(text)
    if not args.quick:
        write_page(text)
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed else 0


# -- runs --------------------------------------------------------------------------------------------------------


def measure(size: int, args: argparse.Namespace, work: Path, traceml: Path | None) -> Measured:
    arguments = ["--size", str(size), "--batch", str(calibrate(size, work))]
    one = Measured()
    blocks(one, arguments, max(8, int(BLOCK_S * 1000 / size)), args.pairs, work)
    medians = f"step {statistics.median(one.step):+.2%}, CPU {statistics.median(one.cpu):+.2%}"
    print(f"{size:4} ms, {len(one.step)} pairs of blocks: {medians}", flush=True)
    arguments += ["--steps", str(WARM_UP + max(30, int(args.seconds * 1000 / size)))]
    for _ in range(args.runs):
        for tool in ("bare", RANKSCOPE) if traceml is None else ("bare", RANKSCOPE, TRACEML):
            whole_run(one, tool, arguments, work, traceml)
            print(f"{size:4} ms, a whole run, {tool}: step {one.runs[tool][-1]:.3f} ms", flush=True)
    return one


def blocks(one: Measured, arguments: list[str], block: int, pairs: int, work: Path) -> None:
    out = work / "blocks"
    output(torchrun([*arguments, "--pairs", str(pairs), "--block", str(block), "--out", str(out)]))
    ranks = [json.loads(out.with_suffix(f".{rank}.json").read_text()) for rank in range(2)]

    def mean(way: str, key: str) -> list[float]:
        by_rank = [[block[key] for block in rank[way]] for rank in ranks]
        return [statistics.mean(values) for values in zip(*by_rank, strict=True)]

    def over_bare(way: str, key: str) -> list[float]:
        return [b / a - 1 for a, b in zip(mean("bare", key), mean(way, key), strict=True)]

    bare = mean("bare", "step_ms")
    one.step_ms = statistics.median(bare)
    one.step, one.cpu = over_bare("observed", "step_ms"), over_bare("observed", "cpu_ms")
    one.early_step, one.early_cpu = over_bare("early", "step_ms"), over_bare("early", "cpu_ms")
    one.null = [b / a - 1 for a, b in pairwise(bare)]


def whole_run(one: Measured, tool: str, arguments: list[str], work: Path, traceml: Path | None) -> None:
    out, report = work / "measured", work / "report.json"
    command = torchrun([*arguments, "--out", str(out)])
    if tool == RANKSCOPE:
        run = [sys.executable, "-m", "rankscope", "run", "--no-dashboard", "--runs-dir", str(work / "runs")]
        command = [*run, "--report-json", str(report), "--", *command]
    elif tool == TRACEML:
        assert traceml is not None
        command = [
            str(traceml / "bin" / "traceml"), "run", "--mode", "summary", "--nproc-per-node", "2",
            "--logs-dir", str(work / "traceml-logs"),
            str(HERE / "train.py"), "--args", *arguments, "--out", str(out), "--traceml",
        ]  # fmt: skip
    output(command)
    ranks = [json.loads(out.with_suffix(f".{rank}.json").read_text()) for rank in range(2)]
    one.runs.setdefault(tool, []).append(statistics.mean(r["step_ms"] for r in ranks))
    if tool == RANKSCOPE:
        share = json.loads(report.read_text())["overhead"]["share"]
        one.reported.append(float("nan") if share is None else share)
        one.recorder.append(recorder_share(work / "runs"))
        shutil.rmtree(work / "runs")


def calibrate(size: int, work: Path) -> int:
    out = work / "batch"
    output(torchrun(["--size", str(size), "--calibrate", str(size), "--out", str(out)]))
    return int(json.loads(out.with_suffix(".0.json").read_text()))


def torchrun(arguments: list[str]) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [*launcher, str(HERE / "train.py"), *arguments]


def output(command: list[str]) -> str:
    env = {**os.environ, "OMP_NUM_THREADS": "1", **STEADY_HEAP}
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


def table(results: dict[int, Measured], hooks: dict[str, float]) -> tuple[str, list[str]]:
    """The page's tables, and a line for each number that is missed."""
    missed = []
    lines = [
        f"Measured {time.strftime('%Y-%m-%d')} on {os.cpu_count()} CPUs, 2 gloo ranks, one thread a rank.",
        "In one process: medians over pairs of blocks, in brackets quartiles and standard error of the median.",
        "The recorder is its part of all CPUs, all of which the ranks keep busy here.",
        "",
        "| step | step time | rank CPU | two bare blocks | recorder | together | limit |",
        "|---|---|---|---|---|---|---|",
    ]
    early = [
        "In the first 20 s of a process, when 20 stacks a second are sampled; whole runs are that short here:",
        "",
        "| step | step time | rank CPU | with the recorder | the report says |",
        "|---|---|---|---|---|",
    ]
    for size, one in results.items():
        step, step_text = more(one.step)
        cpu, cpu_text = more(one.cpu)
        recorder = statistics.median(one.recorder) / (os.cpu_count() or 1)
        said = statistics.median(one.reported)
        first, first_text = more(one.early_step)
        cells = (
            f"{one.step_ms:.1f} ms", step_text, cpu_text, more(one.null)[1], f"{recorder:.2%}",
            f"{step + recorder:+.2%}", f"{LIMITS[size]:.0%}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
        early_cells = (
            f"{one.step_ms:.1f} ms", first_text, more(one.early_cpu)[1], f"{first + recorder:+.2%}", f"{said:.2%}",
        )  # fmt: skip
        early.append(f"| {' | '.join(early_cells)} |")
        for what, value in (("step time", step + recorder), ("rank CPU", cpu)):
            if value > LIMITS[size]:
                missed.append(f"{what} at {size} ms: {value:+.2%}, limit {LIMITS[size]:.0%}")
        # What the measurement does not know either is no disagreement.
        if abs(said - first - recorder) > AGREEMENT + error_of(one.early_step):
            missed.append(f"the report says {said:.2%} at {size} ms, measured are {first + recorder:+.2%}")
    lines += ["", *early]
    lines += ["", *whole_runs(results), "", "| hook | CPU time |", "|---|---|"]
    lines += [f"| {name} | {cost / 1000:.2f} µs |" for name, cost in hooks.items()]
    if hooks["record"] > RECORD_LIMIT_NS:
        missed.append(f"a record costs {hooks['record']:.0f} ns, limit {RECORD_LIMIT_NS} ns")
    return "\n".join(lines), missed


def whole_runs(results: dict[int, Measured]) -> list[str]:
    """Median step times of whole runs: their spread is that of the machine."""
    tools = [tool for tool in ("bare", RANKSCOPE, TRACEML) if any(tool in one.runs for one in results.values())]
    lines = [f"| whole runs of | {' | '.join(tools)} |", "|---" * (len(tools) + 1) + "|"]
    for size, one in results.items():
        cells = []
        for tool in tools:
            times = one.runs.get(tool, [])
            cells.append(f"{statistics.median(times):.2f} ms ({min(times):.2f} to {max(times):.2f})" if times else "—")
        lines.append(f"| {size} ms | {' | '.join(cells)} |")
    return lines


def more(ratios: list[float]) -> tuple[float, str]:
    """(how much more, the same in words: quartiles of the turns, and the standard error of the median)."""
    low, middle, high = statistics.quantiles(ratios, n=4)
    return middle, f"{middle:+.2%} ({low:+.2%} to {high:+.2%}; ± {error_of(ratios):.2%})"


def error_of(ratios: list[float]) -> float:
    """The standard error of their median: 1.25 standard deviations, here from the quartiles, over the root of n."""
    low, _, high = statistics.quantiles(ratios, n=4)
    return 1.25 * (high - low) / 1.35 / len(ratios) ** 0.5


def write_page(text: str) -> None:
    """Put the tables between the markers of docs/overhead.md."""
    begin, end = "<!-- begin: make bench -->", "<!-- end: make bench -->"
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
