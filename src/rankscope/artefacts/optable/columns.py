"""From columns under the names and units of a file to an operation table."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rankscope.artefacts.reader import Unreadable
from rankscope.records.imported.operation_table import OperationTable

Values = NDArray[Any]

NAMES: Final[dict[str, tuple[str, ...]]] = {
    "rank": ("rank", "global_rank", "worker", "worker_id"),
    "replica": ("dp_rank", "dp", "data_parallel_rank", "replica"),
    "stage": ("stage", "pp_rank", "pp", "pipeline_rank", "stage_id", "pp_stage"),
    "step": ("step", "iteration", "iter", "step_id", "global_step"),
    "kind": ("optype", "op_type", "op", "operation", "op_name", "name", "type"),
    "start": ("start_ts", "start", "ts", "start_time", "begin", "timestamp"),
    "duration": ("duration", "dur", "elapsed"),
    "end": ("end_ts", "end", "end_time"),
    "order": ("seq_id", "seq", "sequence_id", "op_id"),
    "chunk": ("mc", "model_chunk", "chunk", "vpp_rank", "virtual_stage"),
    "micro_batch": ("mb_id", "mb", "microbatch", "micro_batch", "microbatch_id"),
}
"""Ours -> how files write it, the usual one first; times may carry a unit at their end (`duration_us`)."""
NEEDED: Final = ("rank", "step", "kind", "start")
_UNIT: Final = re.compile(r"[_\-. ]?\(?(ns|us|µs|ms|s|sec|seconds)\)?$")
_NS: Final = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "sec": 1e9, "seconds": 1e9}
COARSEST_NS: Final = 1e6
"""Of start times, how far the next number may be: gaps between operations of a pipeline are shorter than that."""
BEYOND_NS: Final = 1e18
"""31 years: no duration, and a start only of a clock that counts from 1970 and is past the end of int64 with more."""


def assigned(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Ours -> (the file's name, unit in it or nothing) of all columns that are known."""
    found: dict[str, tuple[str, str]] = {}
    plain = {name.strip().lower().replace("-", "_").replace(" ", "_"): name for name in names}
    for ours, theirs in NAMES.items():
        for name in theirs:
            if name in plain:
                found[ours] = (plain[name], "")
                break
            if ours in ("start", "duration", "end"):
                with_unit = [n for n in plain if (m := _UNIT.search(n)) and n[: m.start()] == name]
                if with_unit:
                    unit = _UNIT.search(with_unit[0])
                    assert unit is not None
                    found[ours] = (plain[with_unit[0]], unit[1])
                    break
    return found


def missing(found: Mapping[str, object]) -> list[str]:
    """What an operation table needs and this one has not, as files usually write it."""
    lacking = [NAMES[ours][0] for ours in NEEDED if ours not in found]
    if "duration" not in found and "end" not in found:
        lacking.append("duration")
    return lacking


def table(
    file: str, column: Callable[[str], Values | None], units: Mapping[str, str], kinds: tuple[str, ...]
) -> OperationTable:
    """The table, from columns of any numeric type. `kind` is already a number of `kinds`.

    Missing values are NaN in floating columns; whole numbers cannot hold them and have none. Raises `Unreadable`.
    """
    rank, step, kind, start = (_float(column(name)) for name in NEEDED)
    assert rank is not None and step is not None and kind is not None and start is not None
    raw_start, raw_duration, end = column("start"), column("duration"), _float(column("end"))
    duration = _float(raw_duration)
    unit = units.get("duration") or units.get("end") or units.get("start")
    if duration is None:
        assert end is not None
        duration = end * _scale(end, end - start, units.get("end")) - start * _scale(
            raw_start, end - start, units.get("start")
        )
        in_ns = duration
    else:
        in_ns = duration * _scale(raw_duration, duration, unit)
    scale = _scale(raw_start, duration, units.get("start") or unit)
    with np.errstate(invalid="ignore"):
        start_ns = start * scale
        good = np.isfinite(start_ns) & np.isfinite(in_ns) & (in_ns >= 0) & (in_ns < BEYOND_NS)
        good &= (np.abs(start_ns) < 8 * BEYOND_NS) & np.isfinite(rank) & np.isfinite(step) & (kind >= 0)
        good &= (rank >= 0) & (rank < 2**31) & (np.abs(step) < 2**53)
    if not good.any():
        raise Unreadable(f"none of its {len(good):,} rows has a rank, a step, a start and a duration that can be used")
    _must_be_fine(raw_start, start[good], scale)

    def whole(name: str) -> NDArray[np.int32]:
        values = _float(column(name))
        if values is None:
            return np.full(int(good.sum()), -1, np.int32)
        values = values[good]
        with np.errstate(invalid="ignore"):
            fine = (values >= 0) & (values < 2**31)
        return np.where(fine, values, -1).astype(np.int32)

    return OperationTable(
        file=file,
        rank=None,
        row_rank=rank[good].astype(np.int32),
        replica=whole("replica"),
        stage=whole("stage"),
        step=step[good].astype(np.int64),
        kind=kind[good].astype(np.int16),
        start_ns=np.rint(start_ns[good]).astype(np.int64),
        duration_ns=np.rint(in_ns[good]).astype(np.int64),
        order=whole("order"),
        chunk=whole("chunk"),
        micro_batch=whole("micro_batch"),
        kinds=kinds,
        dropped=int(len(good) - good.sum()),
    )


def _float(values: Values | None) -> NDArray[np.float64] | None:
    return None if values is None else np.asarray(values, np.float64)


def _scale(raw: Values | None, durations: NDArray[np.float64], unit: str | None) -> float:
    """ns in one unit of a column: as its name says, else seconds of fractions; of whole numbers ns, or µs where even
    the longest operation would last less than a millisecond in ns."""
    if unit:
        return _NS[unit]
    if raw is None or not np.issubdtype(raw.dtype, np.integer):
        return 1e9
    finite = durations[np.isfinite(durations)]
    return 1.0 if len(finite) and finite.max() >= 1e6 else 1e3


def _must_be_fine(raw: Values | None, start: NDArray[np.float64], scale: float) -> None:
    if raw is None or raw.dtype not in (np.float32, np.float16):
        return
    largest = start[np.argmax(np.abs(start))]
    apart = float(abs(np.spacing(raw.dtype.type(largest)))) * scale
    if apart > COARSEST_NS:
        raise Unreadable(
            f"start times are {raw.dtype} near {largest:,.0f}: exact to {apart / 1e6:,.0f} ms only; "
            "write float64, or seconds since the step began"
        )
