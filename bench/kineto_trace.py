"""Writes big Kineto traces for `bench/diagnose.py`: the text layout of PyTorch 2.x, any size, nothing of a real job."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

PID: Final = 4321
BASE_US: Final = 6_322_354_283_000.0
LAYERS: Final = 24
GEMM: Final = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off"
    "_kernel__5x_cublas"
)
ELEMENTWISE: Final = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)"
)
NCCL: Final = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
OPERATORS: Final = (
    ("aten::linear", "aten::addmm", GEMM, 38.0),
    ("aten::add", "aten::add", ELEMENTWISE, 6.0),
    ("aten::layer_norm", "aten::native_layer_norm", ELEMENTWISE.replace("CUDAFunctor_add", "LayerNorm"), 9.0),
    ("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention", "flash_fwd_kernel", 55.0),
    ("aten::linear", "aten::mm", GEMM.replace("tn_n", "nn_n"), 41.0),
    ("aten::gelu", "aten::gelu", ELEMENTWISE.replace("CUDAFunctor_add", "GeluCUDAKernelImpl"), 7.0),
)


def write(path: Path, megabytes: float, rank: int = 0, world_size: int = 8) -> int:
    """Write steps until the file has that size; returns the number of events."""
    size = events = step = 0
    with path.open("w", encoding="utf-8") as out:
        size += out.write(_header(rank, world_size))
        template, count, span = _step(rank, world_size)
        while size < megabytes * 1e6:
            shift = {"ids": step * 100_000, "step": step, "us": BASE_US + step * span}
            size += out.write(("" if step == 0 else ",\n") + _stamped(template, shift))
            events += count
            step += 1
        out.write('\n  ],\n  "traceName": "/tmp/trace.json"\n}\n')
    return events


def _header(rank: int, world_size: int) -> str:
    ranks = ", ".join(map(str, range(world_size)))
    return (
        '{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    {\n'
        f'      "id": {rank}, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85028372480, "numSms": 132'
        "\n    }\n  ],\n"
        f'  "distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": {world_size}, "pg_count": 1, '
        f'"pg_config": [{{"pg_name": "0", "pg_desc": "default_pg", "pg_size": {world_size}, "ranks": [{ranks}]}}]}},\n'
        '  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": 1759300074000000000,\n  "traceEvents": [\n'
    )


def _stamped(template: list[tuple[str, float, int]], shift: dict[str, float]) -> str:
    us, ids, step = shift["us"], int(shift["ids"]), int(shift["step"])
    return ",\n".join(
        text.replace("@TS@", f"{us + at:.3f}").replace("@ID@", str(ids + number)).replace("@STEP@", str(step))
        for text, at, number in template
    )


def _step(rank: int, world_size: int) -> tuple[list[tuple[str, float, int]], int, float]:
    """(text, µs within the step, number) of each event of a step; how many; µs of a step."""
    random = Random(rank)
    found: list[tuple[str, float, int]] = []
    host, device, link, number = 10.0, 30.0, 30.0, 1
    for layer in range(LAYERS * 3):
        for outer, inner, kernel, us in OPERATORS:
            number += 3
            took = 14 + 6 * random.random()
            found += [
                (_operator(outer, took), host, number),
                (_operator(inner, took - 3), host + 1, number + 1),
                (_launch("cudaLaunchKernel", 4.1), host + 6, number + 2),
                (_flow("s", PID, PID), host + 6, number + 2),
            ]
            device = max(device + 0.8, host + 11)
            length = us * (0.97 + 0.06 * random.random())
            found += [(_kernel(kernel, length, rank, 7), device, number + 2), (_flow("f", rank, 7), device, number + 2)]
            device += length
            host += took + 2
        number += 3
        link = max(link + 1, device)
        length = 180 * (0.95 + 0.1 * random.random())
        found += [
            (_operator("c10d::allreduce_", 21), host, number),
            (_launch("cudaLaunchKernelExC", 5.2), host + 9, number + 2),
            (_flow("s", PID, PID), host + 9, number + 2),
            (_collective(length, rank, world_size), link, number + 2),
            (_flow("f", rank, 20), link, number + 2),
        ]
        link += length
        host += 24
        if layer % 8 == 0:
            number += 3
            found += [
                (_launch("cudaMemcpyAsync", 9.0), host, number),
                (_flow("s", PID, PID), host, number),
                (_copy(12.5, rank), device + 0.5, number),
                (_flow("f", rank, 7), device + 0.5, number),
            ]
            device += 13
            host += 11
    end = max(host, device, link) + 20
    found.append((_annotation(end - 10), 0.0, 1))
    return found, len(found), end


def _event(head: str, args: str) -> str:
    return f'  {{\n    {head},\n    "args": {{\n      {args}\n    }}\n  }}'


def _operator(name: str, us: float) -> str:
    return _event(
        f'"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": {PID}, "tid": {PID},\n    "ts": @TS@, "dur": {us:.3f}',
        '"External id": @ID@,"Record function id": 0, "Concrete Inputs": ["", "", ""], "Input type": ["c10::BFloat16", '
        '"c10::BFloat16", ""], "Input Dims": [[8, 1024, 2048], [2048, 2048], []], "Ev Idx": @ID@',
    )


def _annotation(us: float) -> str:
    return _event(
        f'"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#@STEP@", "pid": {PID}, "tid": {PID},\n'
        f'    "ts": @TS@, "dur": {us:.3f}',
        '"External id": @ID@,"Record function id": 0, "Ev Idx": @ID@',
    )


def _launch(name: str, us: float) -> str:
    return _event(
        f'"ph": "X", "cat": "cuda_runtime", "name": "{name}", "pid": {PID}, "tid": {PID},\n'
        f'    "ts": @TS@, "dur": {us:.3f}',
        '"External id": @ID@, "cbid": 211, "correlation": @ID@',
    )


def _kernel(name: str, us: float, rank: int, stream: int, more: str = "") -> str:
    return _event(
        f'"ph": "X", "cat": "kernel", "name": "{name}", "pid": {rank}, "tid": {stream},\n'
        f'    "ts": @TS@, "dur": {us:.3f}',
        f'{more}"External id": @ID@, "queued": 0, "device": {rank}, "context": 1,\n      "stream": {stream}, '
        '"correlation": @ID@,\n      "registers per thread": 168,\n      "shared memory": 213148,\n'
        '      "blocks per SM": 1.0,\n      "warps per SM": 12.0,\n      "grid": [2, 66, 1],\n'
        '      "block": [384, 1, 1],\n      "est. achieved occupancy %": 19',
    )


def _collective(us: float, rank: int, world_size: int) -> str:
    ranks = ", ".join(map(str, range(world_size)))
    more = (
        '"Collective name": "allreduce", "In msg nelems": 4194304, "Out msg nelems": 4194304, '
        f'"Group size": {world_size}, "dtype": "BFloat16", "In split size": "[]", "Out split size": "[]", '
        f'"Process Group Name": "0", "Process Group Description": "default_pg", '
        f'"Process Group Ranks": "[{ranks}]",\n      '
    )
    return _kernel(NCCL, us, rank, 20, more)


def _copy(us: float, rank: int) -> str:
    return _event(
        f'"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "pid": {rank}, "tid": 7,\n'
        f'    "ts": @TS@, "dur": {us:.3f}',
        f'"External id": @ID@, "device": {rank}, "context": 1,\n      "stream": 7, "correlation": @ID@,\n'
        '      "bytes": 1048576, "memory bandwidth (GB/s)": 83.886',
    )


def _flow(phase: str, pid: int, tid: int) -> str:
    end = ', "bp": "e"' if phase == "f" else ""
    return (
        f'  {{\n    "ph": "{phase}", "id": @ID@, "pid": {pid}, "tid": {tid}, "ts": @TS@,\n'
        f'    "cat": "ac2g", "name": "ac2g"{end}\n  }}'
    )
