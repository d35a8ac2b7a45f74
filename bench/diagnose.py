"""What reading Kineto traces costs, beside HolisticTraceAnalysis 0.5.0 on the same files; one core, one run.

    python bench/diagnose.py [--megabytes 207 1000] [--hta] [--data DIR] [--keep DIR]

Traces are made up here. `--hta` installs HolisticTraceAnalysis into an environment of its own (`.venv-hta`, or
$RANKSCOPE_HTA_VENV; a few hundred MB) and lets it load, break down and overlap the same files; without it only our
columns are filled. `--data`: a folder with the eight traces of `kineto/h100-8rank`, for a third row. Ends with 1
where a number of the issue is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import kineto_trace

HTA_ENVIRONMENT = Path(os.environ.get("RANKSCOPE_HTA_VENV", Path(__file__).parent.parent / ".venv-hta"))
HTA_PACKAGES = ("HolisticTraceAnalysis==0.5.0", "pandas<3")  # it sets values in ways that pandas 3 refuses

# (seconds, MB) at most, by MB of the file; in between the next larger one holds.
LIMITS = {207: (2.5, 250), 1000: (12.0, 600)}
EIGHT_RANKS_S = 3.0
FASTER, LEANER = 8, 4

OURS = """
import json, resource, sys, time
begun = time.perf_counter()
from pathlib import Path
from rankscope.analysis.imported.examiners.device_traces import DeviceTraces
from rankscope.artefacts.readers.kineto import Kineto
examiner = DeviceTraces()
digests = [examiner.digest(table) for path in sys.argv[1:] for table in Kineto().read(Path(path))]
answer = examiner.examine(digests, None)
share = answer.shares[0]
print(json.dumps({"s": time.perf_counter() - begun, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                  "idle": share.idle, "compute": share.compute, "overlap": share.hidden_communication,
                  "findings": [one.title for one in answer.findings]}))
"""

# The last step is kept (it is left out by default), so that both look at the same work.
THEIRS = """
import json, logging, resource, sys, time, warnings
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
begun = time.perf_counter()
from hta.trace_analysis import TraceAnalysis
files = dict(enumerate(sys.argv[1:]))
analysis = TraceAnalysis(trace_files=files, trace_dir="/", include_last_profiler_step=True)
shares = analysis.get_temporal_breakdown(visualize=False)
overlap = analysis.get_comm_comp_overlap(visualize=False)
print(json.dumps({"s": time.perf_counter() - begun, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                  "idle": float(shares["idle_time(us)"][0] / shares["kernel_time(us)"][0]),
                  "compute": float(shares["compute_time(us)"][0] / shares["kernel_time(us)"][0]),
                  "overlap": float(overlap["comp_comm_overlap_pctg"][0]) / 100}))
"""


@dataclass(frozen=True)
class Row:
    what: str
    ours: dict[str, Any]
    theirs: dict[str, Any] | None
    limit_s: float
    limit_mb: float | None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[207, 1000])
    parser.add_argument("--hta", action="store_true")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--keep", type=Path, help="where made-up traces stay, to be used again")
    options = parser.parse_args()
    hta = hta_python() if options.hta else None
    with tempfile.TemporaryDirectory(prefix="rankscope-bench-") as folder:
        rows = []
        for megabytes in options.megabytes:
            path = (options.keep or Path(folder)) / f"made-up-{megabytes}.json"
            if not path.exists():
                print(f"writing {path}", file=sys.stderr)
                kineto_trace.write(path, megabytes)
            limit_s, limit_mb = next((LIMITS[size] for size in sorted(LIMITS) if megabytes <= size), (None, None))
            rows.append(row(f"{megabytes} MB", [path], hta, limit_s or 12.0 * megabytes / 1000, limit_mb))
        if options.data:
            files = sorted(options.data.glob("*.json*"))
            rows.append(row(f"{len(files)} ranks", files, hta, EIGHT_RANKS_S, None))
    return show(rows)


def row(what: str, paths: Sequence[Path], hta: str | None, limit_s: float, limit_mb: float | None) -> Row:
    print(f"reading {what}", file=sys.stderr)
    theirs = measured(hta, THEIRS, paths) if hta is not None else None
    return Row(what, measured(sys.executable, OURS, paths), theirs, limit_s, limit_mb)


def measured(python: str, program: str, paths: Sequence[Path]) -> dict[str, Any]:
    """Seconds with all imports, peak MB and figures, on one core."""
    core = {min(os.sched_getaffinity(0))}
    out = subprocess.run(
        [python, "-c", program, *map(str, paths)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "HTA_DISABLE_NS_ROUNDING": "1", "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: os.sched_setaffinity(0, core),
    ).stdout
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def hta_python() -> str:
    python = HTA_ENVIRONMENT / "bin" / "python"
    if not python.exists():
        print(f"installing {HTA_PACKAGES[0]} into {HTA_ENVIRONMENT}", file=sys.stderr)
        venv.create(HTA_ENVIRONMENT, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *HTA_PACKAGES], check=True)
    return str(python)


def show(rows: Sequence[Row]) -> int:
    print("| trace | rankscope s / MB | at most s / MB | HTA 0.5.0 s / MB | faster, leaner | idle ours / HTA |")
    print("|---|---|---|---|---|---|")
    missed = []
    for one in rows:
        ours, theirs = one.ours, one.theirs
        limit = f"{one.limit_s:.1f} / {one.limit_mb or '-'}"
        beside = f"{theirs['s']:.1f} / {theirs['mb']:,.0f}" if theirs else "not run"
        times = f"{theirs['s'] / ours['s']:.1f} x, {theirs['mb'] / ours['mb']:.1f} x" if theirs else "-"
        idle = f"{100 * ours['idle']:.2f} % / {100 * theirs['idle']:.2f} %" if theirs else f"{100 * ours['idle']:.2f} %"
        print(f"| {one.what} | {ours['s']:.2f} / {ours['mb']:.0f} | {limit} | {beside} | {times} | {idle} |")
        if ours["s"] > one.limit_s or (one.limit_mb and ours["mb"] > one.limit_mb):
            missed.append(f"{one.what}: {ours['s']:.2f} s and {ours['mb']:.0f} MB")
        large = one.limit_mb is not None
        if theirs and large and (theirs["s"] < FASTER * ours["s"] or theirs["mb"] < LEANER * ours["mb"]):
            missed.append(f"{one.what}: not {FASTER} times faster and {LEANER} times leaner")
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
