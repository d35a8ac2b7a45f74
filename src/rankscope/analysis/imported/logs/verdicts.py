"""What an error's own words say of its cause, and whether it can have begun a failure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

BEGINS, UNSURE, FOLLOWS, NO_ERROR = "begins", "unsure", "follows", "no error"


@dataclass(frozen=True, slots=True)
class Verdict:
    cause: str
    role: str
    """`begins`: an error of its own; `unsure`: only where nothing else began it; `follows`: of another rank's end."""
    confidence: float
    what: str
    """For a title, after the rank: `ran out of device memory`."""
    next: tuple[str, ...]
    severity: str = "critical"
    component: str | None = None
    figures: tuple[tuple[str, float, str], ...] = field(default=())
    """(text, value, unit) beyond the line itself."""
    names_rank: bool = True
    """Whether the rank that reports it is the one at fault."""
    differ: tuple[int, ...] = ()
    """Ranks that it says to differ from one another."""


_AFTER: Final = re.compile(
    r"[Cc]onnection (?:was )?(?:closed|reset) by (?:remote )?peer|Broken pipe|ncclRemoteError|remote process exited"
    r"|NCCL communicator (?:was aborted|encountered)|[Ss]ocket [Tt]imeout|Watchdog caught|[Tt]imed out waiting "
    r"\d+ ?ms for"
    r"|wait timeout after \d+ ?ms|failed to recv, got 0 bytes|NCCL error: remote|ProcessGroup\w* .*(?:abort|shut down)"
    r"|monitoredBarrier|BrokenProcessPool|Application timeout caused pair closure|Read timeout|process group has been"
    r"|store is down|recvValue failed|sendBytes failed|collective operation timeout"
)
_AFTER_TYPES: Final = (
    "ChildFailedError", "SignalException", "ProcessRaisedException", "ProcessExitedException", "BrokenPipeError",
    "ConnectionResetError",
        "RendezvousClosedError", "RendezvousGracefulExitError", "DistBackendError", "CalledProcessError",
)  # fmt: skip
_NO_ERRORS: Final = ("KeyboardInterrupt", "SystemExit", "GeneratorExit", "StopIteration", "BdbQuit", "Empty")
_HARDWARE: Final = re.compile(
    r"uncorrectable (?:ECC|NVLink)|ECCUncorrectable|fallen off the bus|GPU is lost|cudaErrorHardware|hardware error"
    r"|CUDA error: (?:unknown error|the launch timed out|device not ready|initialization error"
    r"|all CUDA-capable devices are busy)|contained memory error|\bNVML.*lost|HSA_STATUS_ERROR_(?:EXCEPTION"
    r"|MEMORY_FAULT)",
    re.IGNORECASE,
)
_NETWORK: Final = re.compile(r"ncclSystemError|unhandled system error|ibv_\w+.*fail|NET/IB|NET/OFI.*fail|network is "
                             r"unreach", re.I)
_MEMORY: Final = re.compile(
    r"(?:CUDA|HIP|NPU|XPU|MPS backend) out of memory|CUDA error: out of memory|Cuda failure '?out of memory"
    r"|CUBLAS_STATUS_ALLOC_FAILED|OutOfMemoryError|hipErrorOutOfMemory",
)
_SHUTTING_DOWN: Final = re.compile(r"(?:sendBytes|recvValue\w*|waitForInput) failed on|\"should dump\" flag")
"""Whose store has gone, with or without an error: at the end of every job somebody is the last."""
_HOST_MEMORY: Final = re.compile(r"DefaultCPUAllocator: (?:can't|not enough)|^MemoryError|std::bad_alloc|Cannot "
                                 r"allocate memory")
_INDEX: Final = re.compile(
    r"index out of range in self|Target -?\d+ is out of bounds|index out of bounds|srcIndex < srcSelectDimSize"
    r"|t >= 0 && t < n_classes|index -?\d+ is out of bounds for dimension|idx_dim >= 0|Class values must be "
    r"(?:smaller|non)"
    r"|scatter\(\): Expected dtype|out of bounds for dimension \d+ with size",
)
_SHM: Final = re.compile(r"shared memory segment"
                         r"|insufficient shared memory|out of shared memory|/dev/shm|unable to \w+.*</torch_|shm_open"
                         r"|posix_fallocate")
_BUS: Final = re.compile(r"killed by signal: Bus error|[Uu]nexpected bus error")
_WORKER: Final = re.compile(r"DataLoader worker \(pid\(?s?\)? ?[\d, ]+\).*?(?:killed by signal: (\w[\w ]*)|exited "
                            r"unexpectedly)")
_RENDEZVOUS: Final = re.compile(
    r"EADDRINUSE|[Aa]ddress already in use|Rendezvous(?:Timeout|Connection|State)?Error|timed out waiting for clients"
    r"|DistStoreError"
    r"|server socket has failed|client socket has (?:failed|timed out)|failed to connect to|Duplicate rank"
    r"|hostname.*(?:resol|not known)"
    r"|world_?size.*(?:mismatch|does not match)|Error initializing torch.distributed|environment variable \w+ "
    r"expected, but not set"
    r"|DistNetworkError|timed out after \d+",
    re.IGNORECASE,
)
_UNUSED: Final = re.compile(r"Expected to have finished reduction in the prior iteration|did not receive grad")
_NAMES: Final = re.compile(r"(?P<indices>indices )?which did not receive grad for rank \d+: (?P<names>.+)")
_BATCH: Final = re.compile(
    r"Expected input batch_size \(\d+\) to match target batch_size|each element in list of batch should be of equal "
    r"size"
    r"|stack expects each tensor to be equal size|[Tt]arget size .* must be the same as input size|different from "
    r"the input size"
    r"|Input and label .*size",
)
_SAMPLE: Final = re.compile(
    r"UnidentifiedImageError|image file is truncated|broken (?:data|PNG)|Corrupt(?:ed)? (?:JPEG|image|file)"
    r"|BadZipFile|Truncated File Read"
    r"|UnpicklingError|JSONDecodeError|UnicodeDecodeError|ArrowInvalid|cannot identify image|Error -\d while "
    r"decompressing|EOFError"
)
_NAN: Final = re.compile(r"Function '?(\w+)'? returned nan values")
_MISMATCH: Final = re.compile(r"Detected mismatch between collectives|collectives? .*mismatch|Mismatched "
                              r"collective", re.I)
_FINGERPRINT: Final = re.compile(r"[Rr]ank (\d+) is running (?:inconsistent )?collective: "
                                 r"CollectiveFingerPrint\((.*?\]|[^)]*)")
_OP: Final = re.compile(r"OpType=(\w+)")
_DEVICE_ASSERT: Final = "device-side assert triggered"
_SIZE: Final = re.compile(r"Tried to allocate ([\d.]+) ([KMGT]i?B|bytes)")
_UNALLOCATED: Final = re.compile(r"([\d.]+) ([KMGT]i?B|bytes) is reserved by PyTorch but unallocated")
_OLD: Final = re.compile(
    r"([\d.]+) ([KMGT]i?B|bytes) already allocated; ([\d.]+) ([KMGT]i?B|bytes) free; ([\d.]+) ([KMGT]i?B|bytes) "
    r"reserved"
)
_UNITS: Final = {"bytes": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
LOG_OF_NODE: Final = "read the kernel's log of the node (`dmesg -T`) around this time"


def of_error(kind: str, text: str, *, in_loader: bool) -> Verdict:
    """The verdict on an exception (`kind` is its type) or an error message."""
    name = kind.rsplit(".", 1)[-1]
    short = text if len(text) < 140 else text[:137] + "..."
    if name in _NO_ERRORS:
        return Verdict("rank-exception", NO_ERROR, 0.2, f"ended with {name}", ())
    if not kind and _SHUTTING_DOWN.search(text):
        return Verdict("network-error", NO_ERROR, 0.2, f"lost the store: {short}", ())
    if _HARDWARE.search(text):
        return Verdict("hardware-error", BEGINS, 0.9, f"reports an error of its device: {short}", (
            LOG_OF_NODE + " and `nvidia-smi -q`: which device, which count of errors",
            "take the node out, and go on from the last checkpoint on another one"))  # fmt: skip
    if _BUS.search(text) or (_SHM.search(text) and not _MEMORY.search(text)):
        return Verdict("shared-memory-exhausted", BEGINS, 0.9, f"/dev/shm is full: {short}", (
            "give the container more shared memory (`docker run --shm-size=...` or `--ipc=host`; an emptyDir of "
            "medium Memory)",
            "fewer workers, a smaller prefetch_factor, or "
            "`torch.multiprocessing.set_sharing_strategy('file_system')`"))  # fmt: skip
    if (worker := _WORKER.search(text)) is not None:
        if (worker[1] or "").startswith("Killed"):
            return Verdict(
                "out-of-memory", BEGINS, 0.6, f"a loader worker was killed, most likely for want of host "
                                              f"memory: {short}",
                           (LOG_OF_NODE + " for the memory killer", "fewer loader workers, or less memory in each"))
        return Verdict("dead-rank", BEGINS, 0.7, f"a loader worker died: {short}", (
            "run it with num_workers=0, or with PYTHONFAULTHANDLER=1, to see in which code",))  # fmt: skip
    if _UNUSED.search(text):
        names = _NAMES.search(text)
        which = names["names"].strip()[:120] if names is not None else None
        if names is not None and names["indices"]:
            which = f"number {which} of model.parameters()"
        return Verdict(
            "unused-parameters", BEGINS, 0.95, "left parameters without a gradient" + (f": {which}" if which else ""), (
            "use these parameters in forward, or freeze them (`requires_grad_(False)`)",
            "if they are left out on purpose: `find_unused_parameters=True`, at some "
            "cost"), component=which)  # fmt: skip
    if "op.preamble.length <= op.nbytes" in text:
        return Verdict("collective-shape-mismatch", BEGINS, 0.8, f"got more from a peer than it expected: {short}", (
            "compare the sizes that the ranks give to this call: TORCH_DISTRIBUTED_DEBUG=DETAIL names them",
            "the rank that reports it only received"), names_rank=False)  # fmt: skip
    if _MISMATCH.search(text):
        return _mismatch(text, short)
    if _INDEX.search(text):
        return Verdict("index-out-of-range", BEGINS, 0.95, f"an index is out of range: {short}", (
            "compare the largest index of the batch with the size of the embedding, and labels with the number of "
            "classes",
            "where it came from a device: run the step on the CPU, which names the line"))  # fmt: skip
    if _MEMORY.search(text):
        return _out_of_memory(text)
    if _HOST_MEMORY.search(text):
        return Verdict("out-of-memory", BEGINS, 0.85, f"ran out of host memory: {short}", (
            "look at what grows on the host: the dataset's copies in workers, caches, a too large batch",))  # fmt: skip
    if (nan := _NAN.search(text)) is not None:
        return Verdict("nan-from-operation", BEGINS, 0.95, f"{nan[1]} gave the first NaN in backward", (
            "look at the forward operation of this name: a root or logarithm of zero, a division, an overflow",),
            component=nan[1])  # fmt: skip
    if _BATCH.search(text):
        return Verdict("batch-shape-mismatch", BEGINS, 0.85, f"the parts of a batch do not fit: {short}", (
            "look at the collate function and the last, shorter batch",))  # fmt: skip
    if (in_loader and _SAMPLE.search(text)) or "UnidentifiedImageError" in text or "image file is truncated" in text:
        return Verdict("unreadable-sample", BEGINS, 0.85, f"a sample cannot be read: {short}", (
            "find the file of this sample and replace it or leave it out",))  # fmt: skip
    if _AFTER.search(text) or (name in _AFTER_TYPES and not _NETWORK.search(text)):
        return Verdict("network-error", FOLLOWS, 0.4, f"lost its peers: {short}", (
            "look for the rank that ended first: in the logs of the other ranks and of the launcher",))  # fmt: skip
    if _RENDEZVOUS.search(text) and not in_loader and name not in ("TimeoutExpired", "ReadTimeout", "ConnectTimeout"):
        return Verdict("rendezvous-failure", BEGINS, 0.85, f"the start-up failed: {short}", (
            "port in use: end the old job, or take another --rdzv-endpoint / MASTER_PORT",
            "otherwise compare MASTER_ADDR, node ranks and world size on all nodes, and whether the port can be "
            "reached"))  # fmt: skip
    if _NETWORK.search(text):
        return Verdict("network-error", BEGINS, 0.6, f"a transfer failed: {short}", (
            "run again with NCCL_DEBUG=INFO; look at the state of the ports (`ibstat`, `ip link`) on its "
            "node",))  # fmt: skip
    if "DataLoader timed out" in text:
        return Verdict("loader-deadlock", BEGINS, 0.5, f"its loader gave no batch in time: {short}", (
            "take stacks of the workers (`py-spy dump`); a lock held while forking is the usual reason",))  # fmt: skip
    if _DEVICE_ASSERT in text:
        return Verdict(
            "index-out-of-range", BEGINS, 0.5, "a check in a device kernel failed, mostly an index out of range", (
            "run the step on the CPU: there the error names the line and the index",))  # fmt: skip
    return Verdict(
        "rank-exception", BEGINS, 0.8, f"raised {short}", ("look at the line named; the peers' errors follow from it",))


def _mismatch(text: str, short: str) -> Verdict:
    parts = _FINGERPRINT.findall(text)
    differ = tuple(sorted({int(rank) for rank, _ in parts if len(rank) < 7}))
    operations = {op[1] for _, part in parts if (op := _OP.search(part)) is not None}
    same = len(operations) == 1
    cause = "collective-shape-mismatch" if same else "collective-order-mismatch"
    what = "sizes" if same else "operations"
    return Verdict(cause, BEGINS, 0.9, f"ranks call different {what} at one place of the sequence: {short}", (
        "look for a branch that depends on the rank or on its data before this call",), differ=differ)  # fmt: skip


def _out_of_memory(text: str) -> Verdict:
    wanted, unused = _bytes(_SIZE.search(text)), _bytes(_UNALLOCATED.search(text))
    if unused is None and (old := _OLD.search(text)) is not None:
        unused = _size(old[5], old[6]) - _size(old[1], old[2])
    figures = []
    if wanted is not None:
        figures.append(("size of the allocation that failed", wanted, "bytes"))
    if unused is not None:
        figures.append(("reserved by PyTorch but not allocated", unused, "bytes"))
    asked = f" at an allocation of {wanted / (1 << 30):.2f} GiB" if wanted else ""
    if wanted and unused is not None and unused >= wanted:
        return Verdict("memory-fragmentation", BEGINS, 0.75,
                       f"ran out of device memory{asked} although {unused / (1 << 30):.2f} GiB are reserved and free", (
            "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "take a memory snapshot (`torch.cuda.memory._record_memory_history`) and give it to `rankscope diagnose`"),
            figures=tuple(figures))  # fmt: skip
    return Verdict("out-of-memory", BEGINS, 0.9, f"ran out of device memory{asked}", (
        "a smaller micro-batch, activation checkpointing, or sharded states",
        "take a memory snapshot (`torch.cuda.memory._record_memory_history`) and give it to `rankscope diagnose`"),
        figures=tuple(figures))  # fmt: skip


def _bytes(found: re.Match[str] | None) -> float | None:
    return _size(found[1], found[2]) if found is not None else None


def _size(number: str, unit: str) -> float:
    return float(number) * _UNITS["bytes" if unit == "bytes" else unit[0]] if number.count(".") < 2 else 0.0
