"""Traces of `torch.profiler`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from rankscope.artefacts.file_rank import file_rank
from rankscope.artefacts.kineto.batches import Batches
from rankscope.artefacts.kineto.columns import Columns
from rankscope.artefacts.kineto.header import header_of
from rankscope.artefacts.opening import opened
from rankscope.artefacts.reader import Reader, Unreadable
from rankscope.records.imported.device_trace import COLLECTIVE, DeviceTrace
from rankscope.records.imported.table import Table

_SIGNS: Final = re.compile(
    rb'"(?:deviceProperties|computeProperties|distributedInfo)"\s*:'
    rb'|"cat"\s*:\s*"(?:cpu_op|Operator|user_annotation|python_function|kernel|Kernel|cuda_runtime|cuda_driver|hip_runtime'
    rb'|xpu_runtime|mtia_runtime|mtia_ccp_events|gpu_memcpy|gpu_memset|gpu_user_annotation|cpu_instant_event|ac2g'
    rb'|async_cpu_to_gpu)"'
    rb'|ProfilerStep#|PyTorch Profiler|"(?:CPU|CUDA) functions"'
)
_EPOCH_2000_NS: Final = 946_684_800 * 10**9


class Kineto(Reader):
    """Chrome JSON of Kineto: `torch.profiler` of PyTorch 1.8 to 2.13 (`export_chrome_trace`,
    `tensorboard_trace_handler`, on-demand profiling), for CUDA, ROCm, XPU, MTIA or the host alone; also of the
    profiler before it, which wrote a list. Layouts and indentation may be anything: files are often rewritten by
    scripts."""

    name: ClassVar[str] = "kineto trace"
    certainty: ClassVar[int] = 3  # its header has words of other formats, as `pg_config` of flight recorders

    def recognises(self, path: Path, head: bytes) -> bool:
        text = head
        if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            text = head.decode("utf-16", "replace").encode("utf-8", "replace")
        text = text.removeprefix(b"\xef\xbb\xbf").lstrip()
        if not text.startswith((b"{", b"[")):
            return False
        if text.startswith(b"["):
            return b'"ph"' in text and _SIGNS.search(text) is not None
        if b'"traceEvents"' in text:
            return _SIGNS.search(text) is not None
        return b'"schemaVersion"' in text and b'"deviceProperties"' in text

    def read(self, path: Path) -> Iterator[Table]:
        columns = Columns()
        with opened(path) as stream:
            batches = Batches(stream)
            for batch in batches:
                columns.add(batch)
            header = batches.header()
        if not len(columns):
            raise Unreadable(batches.trouble or "holds no event that has a time and a duration")
        trouble = batches.trouble
        yield _trace(path, columns, header, complete=not trouble)
        if trouble:
            raise Unreadable(f"{trouble}; what could be read before and after was used")


def _trace(path: Path, columns: Columns, found: dict[str, Any], complete: bool) -> DeviceTrace:
    header = header_of(found)
    window, dropped = columns.window_ns, columns.dropped
    arrays = columns.finished()
    if header.base_ns:
        arrays["start_ns"] += header.base_ns
        arrays["memory_ns"] += header.base_ns
    lane, lanes = columns.lanes.finished(arrays.pop("lane"))
    _add_bare_collectives(arrays)
    rank = header.rank if header.rank is not None else file_rank(str(path))
    return DeviceTrace(
        file=str(path),
        rank=rank,
        lane=lane,
        lanes=lanes,
        names=tuple(columns.names),
        wall_clock=header.has_base or int(np.median(arrays["start_ns"])) > _EPOCH_2000_NS,
        window_ns=(window[0] + header.base_ns, window[1] + header.base_ns) if window else None,
        complete=complete,
        dropped=dropped,
        world_size=header.world_size,
        backend=header.backend,
        groups=header.groups,
        device_names=header.device_names,
        num_sms=header.num_sms,
        versions=header.versions,
        **arrays,
    )


def _add_bare_collectives(arrays: dict[str, Any]) -> None:
    """Kernels that communicate and say nothing of what: before PyTorch 2.2, and on ROCm."""
    known = arrays["collective_span"]
    bare = np.setdiff1d(np.flatnonzero(arrays["category"] == COLLECTIVE), known).astype(np.int32)
    if not len(bare):
        return
    order = np.argsort(np.concatenate([known, bare]), kind="stable")
    for name in list(arrays):
        if name.startswith("collective_"):
            old = arrays[name]
            new = bare if name == "collective_span" else np.full(len(bare), -1, old.dtype)
            arrays[name] = np.concatenate([old, new])[order]
