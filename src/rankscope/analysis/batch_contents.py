"""The tensors of batches that were looked at, each with the phase that it served: training or evaluation."""

from __future__ import annotations

import re
from collections import Counter as Counted
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from rankscope.analysis.facts import Facts, Ints
from rankscope.analysis.tables import column
from rankscope.records.batch_contents import FROM_LOADER, BatchTensor
from rankscope.records.training import Forward

TRAINING, EVALUATION = "training", "evaluation"
MOSTLY = 0.8
"""Of a loader's batches that serve one phase: then all do; one may have been fetched ahead of a change."""
_SHAPE = re.compile(r"(\w+)\[([\d, ]*)\]")


@dataclass(frozen=True, slots=True)
class Seen:
    """One tensor of one batch."""

    position: int
    origin: int
    source: str
    """Class of the dataset, or the model."""
    path: str
    """Where it is in the batch; of a layer's input, the path of the layer."""
    loader: int
    phase: str
    """`training`, `evaluation`, or nothing where no forward followed."""
    step: int
    time_ns: int
    dtype: str
    sizes: tuple[int, ...]
    mean: float
    std: float
    least: float
    most: float
    zeros: float
    non_finite: float
    integral: bool

    @property
    def floating(self) -> bool:
        return "float" in self.dtype

    @property
    def rms(self) -> float:
        """Root mean square of its elements that are not zero: of words counted, of pixels with a black margin, most
        are."""
        shown = max(1 - self.zeros, 1e-9)
        return float(np.sqrt((self.mean**2 + self.std**2) / shown))


def batch_tensors(facts: Facts) -> tuple[Seen, ...]:
    """All that were looked at, by rank and time."""
    return facts.once(_batch_tensors)


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """(type, sizes) of `float32[32, 3]`."""
    found = _SHAPE.fullmatch(text)
    if found is None:
        return "", ()
    return found[1], tuple(int(size) for size in found[2].split(",") if size.strip())


def _batch_tensors(facts: Facts) -> tuple[Seen, ...]:
    return tuple(seen for position in range(facts.size) for seen in _of_rank(facts, position))


def _of_rank(facts: Facts, position: int) -> list[Seen]:
    rows = facts.rows(BatchTensor, position, window=False)
    values = {field: column(rows, BatchTensor, field).tolist() for field in FIELDS}
    names = facts.tables.names.get(facts.ranks[position].pid, {})
    phases = _phases(facts, position, rows["time_ns"].astype(np.int64), values)
    found = []
    for i, name in enumerate(rows["name"].tolist()):
        dtype, sizes = parse_shape(names.get(values["shape"][i], ""))
        found.append(
            Seen(
                position, values["origin"][i], names.get(values["source"][i], ""), names.get(name, ""),
                values["loader"][i], phases[i], int(rows["step"][i]), int(rows["time_ns"][i]), dtype, sizes,
                values["mean"][i], values["std"][i], values["least"][i], values["most"][i], values["zeros"][i] / 255,
                values["non_finite"][i] / 255, bool(values["integral"][i]),
            )
        )  # fmt: skip
    return found


FIELDS = (
    "source", "shape", "loader", "origin", "training", "grad", "mean", "std", "least", "most", "zeros", "non_finite",
    "integral",
)  # fmt: skip


def _phases(facts: Facts, position: int, times: Ints, values: dict[str, list[int]]) -> list[str]:
    """The phase of each row: its own mode, of a loader's batch that of the forward that follows it."""
    forwards = facts.rows(Forward, position, window=False)
    starts = forwards["time_ns"].astype(np.int64)
    trains = column(forwards, Forward, "training") & column(forwards, Forward, "grad")
    follows = np.searchsorted(starts, times)
    found = []
    for i, place in enumerate(follows.tolist()):
        if values["origin"][i] != FROM_LOADER:
            found.append(TRAINING if values["training"][i] and values["grad"][i] else EVALUATION)
        elif place < len(starts):
            found.append(TRAINING if trains[place] else EVALUATION)
        else:
            found.append("")
    by_loader: dict[int, Counted[str]] = defaultdict(Counted)
    for i, phase in enumerate(found):
        if values["origin"][i] == FROM_LOADER and phase:
            by_loader[values["loader"][i]][phase] += 1
    usual = {loader: _usual(counts) for loader, counts in by_loader.items()}
    return [
        (usual.get(values["loader"][i]) or phase) if values["origin"][i] == FROM_LOADER else phase
        for i, phase in enumerate(found)
    ]


def _usual(counts: Counted[str]) -> str:
    (phase, most), total = counts.most_common(1)[0], sum(counts.values())
    return phase if most >= MOSTLY * total else ""
