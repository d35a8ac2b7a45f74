"""How long the what-if analysis of an operation table takes, and how near its answers are to the published ones.

    python bench/optable.py [FILE] [--answers FOLDER] [--ranks 512]

FILE: a table (default: data/optable/megatron-8gpu/trace.parquet of `$RANKSCOPE_DATA` or `../shared/data`). Each run is
a process of its own. Judged is its CPU time, with the start of Python and all imports: what a user waits for, whatever
else the machine does. `--ranks` adds a made-up job.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT_S = 0.5
"""A fifth of the 2.5 s that the published tool takes for that file."""
NEAR = 0.005
HERE = Path(__file__).resolve().parents[1]


def measure(path: Path) -> None:
    """Prints seconds, megabytes and the answers of one file."""
    start = time.perf_counter()
    from rankscope.analysis.imported.examiners.operation_tables import OperationTables
    from rankscope.artefacts.readers.operation_table import OperationTable

    examiner = OperationTables()
    answer = examiner.examine([examiner.digest(table) for table in OperationTable().read(path)], None)
    took = time.perf_counter() - start
    replayed = answer.replayed
    assert replayed is not None, answer.not_examined
    print(
        json.dumps(
            {
                "s": took,
                "cpu_s": time.process_time(),
                "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "S": replayed.slowdown,
                "M_W": replayed.worker_share,
                "M_S": replayed.stage_share,
                "stage": replayed.by_stage,
                "optype": replayed.by_operation,
                "findings": [finding.title for finding in answer.findings],
            }
        )
    )


def make(path: Path, ranks: int, steps: int = 20, stages: int = 8, batches: int = 16) -> int:
    """Writes a job with as many ranks; the number of its operations."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = np.random.default_rng(0)
    replicas = ranks // stages
    columns: dict[str, list[np.ndarray]] = {
        name: [] for name in ("rank", "dp_rank", "stage", "step", "kind", "start_ts", "duration", "seq_id", "mc")
    }
    kinds = ("forward-compute", "backward-compute", "forward-recv", "forward-send", "optimizer")
    size = (steps, replicas)
    step, replica = (x.ravel() for x in np.indices(size))
    for stage in range(stages):
        for batch in range(batches):
            for kind, after, lasts in ((0, 0.01, 0.01), (1, 0.5, 0.02), (2, 0.0099, 1e-4), (3, 0.02, 1e-4)):
                if (kind == 2 and stage == 0) or (kind == 3 and stage == stages - 1):
                    continue
                duration = lasts * (1 + 0.02 * chance.standard_normal(len(step)))
                start = 0.0201 * stage + 0.03 * batch + after + np.zeros(len(step))
                for name, values in zip(
                    columns,
                    (stage * replicas + replica, replica, stage, step, kind, start, np.abs(duration), batch, 0),
                    strict=True,
                ):
                    columns[name].append(np.broadcast_to(values, len(step)))
        for name, values in zip(
            columns, (stage * replicas + replica, replica, stage, step, 4, 2.0, 0.01, 0, -1), strict=True
        ):
            columns[name].append(np.broadcast_to(values, len(step)))
    arrays = {name: np.concatenate(parts) for name, parts in columns.items()}
    kind = pa.DictionaryArray.from_arrays(pa.array(arrays.pop("kind"), pa.int8()), pa.array(kinds))
    pq.write_table(pa.table({**arrays, "optype": kind}), path)
    return len(arrays["rank"])


def run(path: Path) -> dict[str, object]:
    out = subprocess.run(
        [sys.executable, __file__, str(path), "--measure"], capture_output=True, text=True, check=True
    ).stdout
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--answers", type=Path)
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    places = [Path(p) for p in (os.environ.get("RANKSCOPE_DATA"), HERE.parent / "shared" / "data") if p]
    data = next((p / "optable" for p in places if (p / "optable").exists()), None)
    path = args.file or (data / "megatron-8gpu" / "trace.parquet" if data else None)
    if path is None:
        print("no table at hand; give one")
        return 2
    if args.measure:
        measure(path)
        return 0
    best = min((run(path) for _ in range(5)), key=lambda found: float(str(found["cpu_s"])))
    good = float(str(best["cpu_s"])) <= LIMIT_S
    verdict = "ok" if good else f"TOO MUCH (limit {LIMIT_S} s)"
    print(f"{path.name}: {best['cpu_s']:.2f} s of CPU, {best['s']:.2f} s by the clock, {best['mb']:.0f} MB", verdict)
    print(f"  S {best['S']:.5f}  M_W {best['M_W']}  M_S {best['M_S']}  {best['findings']}")
    answers = args.answers or (data / "answers" if data and not args.file else None)
    if answers is not None:
        result = json.loads((answers / "result.json").read_text())
        pairs = [(best["S"], result["blocking_slowdown"])]
        for ours, theirs in (("stage", "blocking_decompose_by_stage"), ("optype", "blocking_decompose_by_optype")):
            mine = best[ours]
            assert isinstance(mine, dict)
            pairs += [(mine[key], value) for key, value in result[theirs].items()]
        for ours, name in (("M_W", "mw.json"), ("M_S", "ms.json")):
            pairs.append((best[ours], json.loads((answers / name).read_text())[ours.replace("_", "").title()]))
        worst = max(abs(float(str(a)) / b - 1) for a, b in pairs)
        print(f"  {len(pairs)} published values, at most {worst:.1e} away", "ok" if worst <= NEAR else "TOO FAR")
        good = good and worst <= NEAR
    if args.ranks:
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "job.parquet"
            rows = make(made, args.ranks)
            found = run(made)
            print(f"made-up job of {args.ranks} ranks, {rows:,} operations: {found['s']:.1f} s, {found['mb']:.0f} MB")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
