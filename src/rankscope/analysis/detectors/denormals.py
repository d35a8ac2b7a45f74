"""Finds layers whose weights or outputs are subnormal numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import MATERIAL_EVERYWHERE, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import Place, is_user, parse_class_place
from rankscope.analysis.tables import Rows, column
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.training import Forward, Module, Subnormals

MANY = 0.1
"""Share of subnormal numbers in a sample: a few come from every softmax, a tenth is a state that lasts."""


class Denormals(Detector):
    """Subnormal numbers slow the arithmetic of a layer.

    ## What it is
    Weights or activations below 1.2e-38 (float32): CPUs compute with them in microcode, up to 170 times slower.

    ## What shows it
    The share of subnormal numbers in samples of weights and outputs on the deeply recorded steps, and the layer's
    share of the forward time.

    ## What else looks like it
    Zeros (dead units, pruning) are not subnormal and cost nothing.

    ## What to do
    `torch.set_flush_denormal(True)`; find what shrinks the numbers: weight decay without learning, a scale applied
    twice, a decaying state.
    """

    name = "denormals"
    needs = (Forward, Module)
    any_length = True
    inference = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        found: dict[int, list[tuple[str, float, float, bool, Place | None]]] = {}
        for p in range(facts.size):
            rows = facts.rows(Subnormals, p, window=False)
            modules = facts.rows(Module, p, window=False)
            # The median of the samples: subnormals of a single step may come and go with the initialisation.
            for name in np.unique(rows["name"]).tolist():
                mine = rows[rows["name"] == name]
                share = float(np.median(mine["a"] / np.maximum(1, mine["b"])))
                time, place = _time_share(facts, p, modules, int(name))
                if share >= MANY and time >= MATERIAL_EVERYWHERE:
                    weights = bool((column(mine, Subnormals, "activation") == 0).any())
                    found.setdefault(p, []).append(
                        (facts.tables.name(facts.ranks[p].pid, name), share, time, weights, place)
                    )
        if not found:
            return
        positions = tuple(sorted(found))
        layers = sorted(found[positions[0]], key=lambda layer: -layer[2])
        path, share, time, weights, place = layers[0]
        total = min(1.0, sum(layer[2] for layer in layers))
        rows = facts.rows(Subnormals, positions[0], window=False)
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.85,
            title=f"layer {path}: {wording.percent(share)} of its {'weights' if weights else 'outputs'} are subnormal "
            f"numbers, its share of the forward time is {wording.percent(time)}",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="forward",
            component=path,
            location=wording.location(place),
            first_step=int(rows["step"].min()),
            last_step=int(rows["step"].max()),
            cost=Cost(None, total, None),
            evidence=(
                *(
                    Evidence(
                        f"{name}: subnormal {'weights' if w else 'outputs'} in a sample",
                        s,
                        "share",
                        facts.numbers(positions),
                    )
                    for name, s, _, w, _ in layers[:4]
                ),
                Evidence("share of the forward time of these layers", total, "share"),
            ),
            next=(
                "torch.set_flush_denormal(True) at the start of each process",
                "find what makes these numbers so small: decay without learning, a scale applied twice",
            ),
        )


def _time_share(facts: Facts, position: int, modules: Rows, name: int) -> tuple[float, Place | None]:
    """A leaf module's share of the time of all leaf modules on the deeply recorded steps after the first."""
    leaves = modules[column(modules, Module, "leaf") == 1]
    later = leaves[leaves["step"] > 0]
    leaves = later if len(later) else leaves
    total = float(leaves["duration_ns"].sum())
    mine = leaves[leaves["name"] == name]
    if not total or not len(mine):
        return 0.0, None
    text = facts.tables.name(facts.ranks[position].pid, int(column(mine, Module, "class_name")[-1]))
    _, place = parse_class_place(text)
    libraries = facts.ranks[position].process.library_folders
    known = place is not None and is_user(place.file, libraries)
    return float(mine["duration_ns"].sum()) / total, place if known else None
