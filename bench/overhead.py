"""What observation costs: the same training bare and observed, in turn, and TraceML on it for comparison.

    python bench/overhead.py            about 30 minutes
    python bench/overhead.py --quick    about 3 minutes, for a look; its numbers are noise

Where a process's memory lies moves its speed by several percent, for all of its steps: many short pairs say more than
few long ones.

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
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "overhead.md"
TRACEML = "traceml-ai==0.5.0"
LIMITS = {5: 0.03, 20: 0.01, 100: 0.01}
RECORD_LIMIT_NS = 300
AGREEMENT = 0.005


@dataclass
class Measured:
    """One way of running one size: the figures of each repetition, both ranks averaged."""

    step_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    reported: list[float] = field(default_factory=list)
    recorder: list[float] = field(default_factory=list)
    """CPU share of one core that the recorder took while it ran, start and end included."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2 pairs of short runs, nothing written")
    parser.add_argument("--pairs", type=int, default=12, help="pairs of bare and observed runs (default: 12)")
    parser.add_argument("--seconds", type=float, default=6.0, help="training time of a run (default: 6)")
    parser.add_argument("--sizes", type=int, nargs="+", default=sorted(LIMITS), choices=sorted(LIMITS), metavar="MS")
    parser.add_argument("--no-traceml", action="store_true", help="leave TraceML out")
    args = parser.parse_args()
    pairs, seconds = (2, 4.0) if args.quick else (args.pairs, args.seconds)
    with tempfile.TemporaryDirectory(prefix="rankscope-bench-") as folder:
        work = Path(folder)
        traceml = None if args.no_traceml else install_traceml(work / "traceml")
        hooks = json.loads(output([sys.executable, str(HERE / "hooks.py"), "--json"]))
        results = {size: measure(size, pairs, seconds, work, traceml) for size in args.sizes}
    text, missed = table(results, hooks)
    print(text)
    if not args.quick:
        write_page(text)
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed else 0


# -- runs --------------------------------------------------------------------------------------------------------


def measure(size: int, pairs: int, seconds: float, work: Path, traceml: Path | None) -> dict[str, Measured]:
    batch = int(calibrate(size, work))
    steps = 30 + max(30, int(seconds * 1000 / size))
    arguments = ["--size", str(size), "--batch", str(batch), "--steps", str(steps)]
    ways = ["bare", "observed"] + (["traceml"] if traceml else [])
    results = {way: Measured() for way in ways}
    for number in range(pairs):
        # A B B A: a drift of the machine meets both alike.
        for way in ways if number % 2 == 0 else [*ways[1::-1], *ways[2:]]:
            one_run(way, arguments, work, traceml, results[way])
            step, cpu = results[way].step_ms[-1], results[way].cpu_ms[-1]
            print(f"{size:4} ms, pair {number + 1}, {way:9} step {step:8.3f} ms, CPU {cpu:8.3f} ms", flush=True)
    return results


def calibrate(size: int, work: Path) -> str:
    out = work / "batch"
    launch([], ["--size", str(size), "--calibrate", str(size), "--out", str(out)], {})
    return out.read_text()


def one_run(way: str, arguments: list[str], work: Path, traceml: Path | None, into: Measured) -> None:
    out = work / "measured"
    report = work / "report.json"
    arguments = [*arguments, "--out", str(out)]
    prefix: list[str] = []
    if way == "observed":
        prefix = [sys.executable, "-m", "rankscope", "run", "--no-dashboard", "--runs-dir", str(work / "runs")]
        prefix += ["--report-json", str(report), "--"]
    if way == "traceml":
        run_traceml(arguments, work, traceml)
    else:
        launch(prefix, arguments, {})
    ranks = [json.loads(out.with_suffix(f".{rank}.json").read_text()) for rank in range(2)]
    into.step_ms.append(statistics.mean(r["step_ms"] for r in ranks))
    into.cpu_ms.append(statistics.mean(r["cpu_ms"] for r in ranks))
    if way == "observed":
        read = json.loads(report.read_text())
        share = read["overhead"]["share"]
        into.reported.append(float("nan") if share is None else share)
        into.recorder.append(recorder_share(work / "runs"))
        shutil.rmtree(work / "runs")


def launch(prefix: list[str], arguments: list[str], environment: dict[str, str]) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    output([*prefix, *torchrun, str(HERE / "train.py"), *arguments], environment)


def run_traceml(arguments: list[str], work: Path, traceml: Path | None) -> None:
    assert traceml is not None
    name = f"bench-{time.monotonic_ns()}"
    output(
        [
            str(traceml / "bin" / "traceml"), "run", "--mode", "summary", "--nproc-per-node", "2", "--run-name", name,
            "--logs-dir", str(work / "traceml-logs"), str(HERE / "train.py"), "--args", *arguments, "--traceml",
        ]
    )  # fmt: skip


def output(command: list[str], environment: dict[str, str] | None = None) -> str:
    env = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
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
        "Each figure is the ratio of the medians of all runs, in brackets the least and the greatest ratio of a pair.",
        "",
        "| step | observed by | step time | rank CPU | report says | recorder, of one core | limit |",
        "|---|---|---|---|---|---|---|",
    ]
    for size, ways in results.items():
        bare = ways["bare"]
        for way, one in ways.items():
            if way == "bare":
                continue
            step, step_text = ratio(one.step_ms, bare.step_ms)
            cpu, cpu_text = ratio(one.cpu_ms, bare.cpu_ms)
            name = "rankscope" if way == "observed" else TRACEML
            reported = recorder = limit = "—"
            if way == "observed":
                said = statistics.median(one.reported)
                reported, recorder = f"{said:.2%}", f"{statistics.median(one.recorder):.2%}"
                limit = f"{LIMITS[size]:.0%}"
                for what, value in (("step time", step), ("rank CPU", cpu)):
                    if value > LIMITS[size]:
                        missed.append(f"{what} at {size} ms: {value:+.2%}, limit {LIMITS[size]:.0%}")
                if abs(said - step) > AGREEMENT:
                    missed.append(f"the report says {said:.2%} at {size} ms, from outside it is {step:+.2%}")
            length = statistics.median(bare.step_ms)
            lines.append(f"| {length:.1f} ms | {name} | {step_text} | {cpu_text} | {reported} | {recorder} | {limit} |")
    lines += ["", "| hook | CPU time |", "|---|---|"]
    lines += [f"| {name} | {cost / 1000:.2f} µs |" for name, cost in hooks.items()]
    if hooks["record"] > RECORD_LIMIT_NS:
        missed.append(f"a record costs {hooks['record']:.0f} ns, limit {RECORD_LIMIT_NS} ns")
    return "\n".join(lines), missed


def ratio(observed: list[float], bare: list[float]) -> tuple[float, str]:
    """(how much more, the same in words with the spread of the pairs)."""
    more = statistics.median(observed) / statistics.median(bare) - 1
    pairs = [a / b - 1 for a, b in zip(observed, bare, strict=True)]
    return more, f"{more:+.2%} ({min(pairs):+.2%} to {max(pairs):+.2%})"


def write_page(text: str) -> None:
    """Put the tables between the markers of docs/overhead.md."""
    begin, end = "<!-- begin: make bench -->", "<!-- end: make bench -->"
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
