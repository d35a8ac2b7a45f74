"""Whether observation changes anything: every healthy control bare and observed, compared bit by bit.

    python faults/exact.py [--only n01,n05]        about 5 minutes

Compares what the programs print (losses), and all parameters after every optimizer step, which a prelude in a copy of
the program hashes. Ends with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from running import Case, Outcome, load_cases, run_bare, run_observed

PRELUDE = '''
import hashlib, os
from pathlib import Path
from torch.optim.optimizer import register_optimizer_step_post_hook

def note(optimizer, args, kwargs):
    digest = hashlib.sha256()
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
            digest.update(local.detach().contiguous().view(-1).numpy().tobytes())
    rank = os.environ.get("RANK") or note.number()
    with Path(__file__).with_name(f"weights.{rank}").open("a") as file:
        file.write(digest.hexdigest() + "\\n")

def number():
    import torch.distributed as dist
    return dist.get_rank() if dist.is_initialized() else 0

note.number = number
register_optimizer_step_post_hook(note)
'''
FIRST_LINE = "from __future__ import annotations\n"
GLUED = re.compile(r"(?<=\d)(?=(?:site|step|epoch|rank) \d)")


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run printed and which weights it went through, by rank."""

    lines: tuple[str, ...]
    weights: dict[str, tuple[str, ...]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="controls by name, separated by commas: n01,n05")
    args = parser.parse_args(arguments)
    controls = [case for case in load_cases().values() if case.expected.healthy and case.expected.family == "p"]
    if args.only:
        controls = [case for case in controls if case.key in args.only.split(",")]
    if not controls:
        print("exact: no such control", file=sys.stderr)
        return 2
    differing = 0
    for case in controls:
        said = compare(case)
        differing += said[0] != "equal"
        print(f"{case.expected.id}  {said[0]}  {said[1]}", flush=True)
    return 1 if differing else 0


def compare(case: Case) -> tuple[str, str]:
    """(`equal` or what differs, how much was compared)."""
    bare, observed = watch(case, observed=False), watch(case, observed=True)
    steps = sum(len(hashes) for hashes in bare.weights.values())
    much = f"{len(bare.lines)} lines, weights after {steps} optimizer steps of {len(bare.weights)} ranks"
    if not bare.lines or not steps:
        return "nothing to compare", much
    if bare.lines != observed.lines:
        return "printed lines differ", much
    return ("equal" if bare.weights == observed.weights else "weights differ"), much


def watch(case: Case, *, observed: bool) -> Seen:
    with tempfile.TemporaryDirectory(prefix="exact-") as scratch:
        folder = Path(scratch) / case.key
        shutil.copytree(case.folder, folder)
        (folder / "prelude.py").write_text(PRELUDE)
        script = folder / case.script
        script.write_text(script.read_text().replace(FIRST_LINE, FIRST_LINE + "import prelude\n", 1))
        copy = replace(case, folder=folder)
        outcome: Outcome = run_observed(copy) if observed else run_bare(copy)
        if outcome.exit_code:
            raise SystemExit(f"{case.key} ended with {outcome.exit_code}:\n{outcome.output[-2000:]}")
        if observed and not (outcome.report and outcome.report["run"]["steps"]):
            raise SystemExit(f"{case.key} was not observed: there is nothing to compare")
        files = sorted(folder.glob("weights.*"))
        weights = {file.suffix: tuple(file.read_text().split()) for file in files}
        return Seen(_lines(outcome.output), weights)


def _lines(output: str) -> tuple[str, ...]:
    """What the program itself printed, whatever the order of its ranks."""
    # Two ranks that print at the same moment may end up on one line.
    apart = GLUED.sub("\n", output)
    kept = [line for line in apart.splitlines() if line.partition(" ")[0] in ("step", "epoch", "site", "rank", "loss")]
    return tuple(sorted(kept))


if __name__ == "__main__":
    sys.exit(main())
