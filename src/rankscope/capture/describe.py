"""What this process is, as far as can be told without asking torch for more than it has loaded."""

from __future__ import annotations

import os
import platform
import socket
import sys
from typing import TYPE_CHECKING, Any

from rankscope.base.rundir import working_folder
from rankscope.records.process import Process

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent


def describe_process(agent: Agent) -> Process:
    """The description of the calling process; ranks come from the process group, else from the environment."""
    torch: Any = sys.modules.get("torch")
    rank, world = _number("RANK", max(0, agent.rank_hint[0])), _number("WORLD_SIZE", max(1, agent.rank_hint[1]))
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank, world = distributed.get_rank(), distributed.get_world_size()
        agent.backend = distributed.get_backend()
    return Process(
        pid=os.getpid(),
        role=agent.role,
        rank=rank,
        local_rank=_number("LOCAL_RANK", rank),
        world_size=world,
        parent=os.getppid(),
        worker=agent.worker,
        host=socket.gethostname(),
        backend=agent.backend,
        started_ns=agent.started_ns,
        armed_ns=agent.armed_ns,
        torch_threads=torch.get_num_threads() if torch is not None else 0,
        torch_version=str(getattr(torch, "__version__", "")),
        python_version=platform.python_version(),
        torch_folder=os.path.dirname(os.path.abspath(str(getattr(torch, "__file__", "")))) if torch is not None else "",
        python_folder=os.path.dirname(os.__file__),
        cuda_devices=_cuda_devices(torch),
        cpus_allowed=tuple(sorted(os.sched_getaffinity(0))),
        argv=tuple(sys.argv[:50]),
        cwd=working_folder(),
        parameters=agent.parameters,
        level=agent.governor.state(),
        budget=agent.config.budget,
        sources=tuple(source.name for source in agent.sources),
        sources_off=dict(agent.sources_off),
    )


def _number(variable: str, default: int) -> int:
    try:
        return int(os.environ[variable])
    except (KeyError, ValueError):
        return default


def _cuda_devices(torch: Any) -> int:
    # Only if the program has initialised CUDA itself: asking would create a context.
    cuda = getattr(torch, "cuda", None)
    return int(cuda.device_count()) if cuda is not None and cuda.is_initialized() else 0

