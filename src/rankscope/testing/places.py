"""The source files, lines and stacks of the made-up training script: what stack samples and call-sites show."""

from __future__ import annotations

from typing import Final

TRAIN: Final = "/home/user/train.py"
MODEL: Final = "/home/user/model.py"
DATA: Final = "/home/user/data.py"
PYTHON: Final = "/usr/lib/python3.11"
TORCH: Final = "/home/user/venv/lib/python3.11/site-packages/torch"
OURS: Final = "/home/user/venv/lib/python3.11/site-packages/rankscope/capture"

MODULE_LINE: Final = 90
SETUP_LINE, LOADER_LINE, BATCH_LINE = 30, 40, 41
FORWARD_LINE, BACKWARD_LINE, OPTIMIZER_LINE, END_LINE = 44, 45, 46, 47

Frames = tuple[str, ...]
"""`file:line:function` of each frame, outermost first."""

FORWARD: Final[Frames] = (
    f"{TORCH}/nn/modules/module.py:1750:Module._wrapped_call_impl",
    f"{TORCH}/nn/modules/module.py:1761:Module._call_impl",
    f"{MODEL}:21:Net.forward",
)
LINEAR: Final[Frames] = (
    f"{TORCH}/nn/modules/module.py:1761:Module._call_impl",
    f"{TORCH}/nn/modules/linear.py:125:Linear.forward",
)
BACKWARD: Final[Frames] = (
    f"{TORCH}/_tensor.py:630:Tensor.backward",
    f"{TORCH}/autograd/__init__.py:364:backward",
    f"{TORCH}/autograd/graph.py:824:_engine_run_backward",
)
OPTIMIZER: Final[Frames] = (
    f"{TORCH}/optim/optimizer.py:493:Optimizer.profile_hook_step.<locals>.wrapper",
    f"{TORCH}/optim/adamw.py:220:AdamW.step",
)
NEXT: Final[Frames] = (f"{TORCH}/utils/data/dataloader.py:733:_BaseDataLoaderIter.__next__",)
FETCH: Final = f"{TORCH}/utils/data/_utils/fetch.py:52:_MapDatasetFetcher.fetch"
QUEUE_GET: Final[Frames] = (
    f"{TORCH}/utils/data/dataloader.py:1491:_MultiProcessingDataLoaderIter._next_data",
    f"{PYTHON}/multiprocessing/queues.py:113:Queue.get",
)
WORKER: Final[Frames] = (
    f"{PYTHON}/multiprocessing/process.py:108:Process.run",
    f"{TORCH}/utils/data/_utils/worker.py:349:_worker_loop",
)
WORKER_START: Final[Frames] = (f"{TORCH}/utils/data/dataloader.py:1170:_MultiProcessingDataLoaderIter.__init__",)
ALL_REDUCE: Final[Frames] = (
    f"{TORCH}/distributed/c10d_logger.py:81:_exception_logger.<locals>.wrapper",
    f"{TORCH}/distributed/distributed_c10d.py:2810:all_reduce",
)
SAVE: Final[Frames] = (f"{TORCH}/serialization.py:943:save", f"{TORCH}/serialization.py:1190:_save")
DYNAMO: Final[Frames] = (f"{TORCH}/_dynamo/convert_frame.py:1380:ConvertFrame.__call__",)
GC_CALLBACK: Final[Frames] = (f"{OURS}/sources/gc_pauses.py:30:GcPauses.install.<locals>.callback",)
HOOK_TIMER: Final[Frames] = (f"{OURS}/sources/collectives.py:280:Collectives._timed_hook.<locals>.timed",)


def loop(line: int) -> Frames:
    """The training loop at one of its lines."""
    return (f"{TRAIN}:{MODULE_LINE}:<module>", f"{TRAIN}:{line}:main")


def site(line: int) -> str:
    """The call-site of that line, as records name it."""
    return f"{TRAIN}:{line}:main"
