"""Every collective of this process, whoever calls it: user code, DDP's reducer, FSDP2, functional collectives."""

from __future__ import annotations

import sys
from functools import wraps
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from rankscope.base.guard import guard, swallow
from rankscope.capture.patches import Patches
from rankscope.capture.source import Source
from rankscope.records.collective import Collective, CommunicationCode, CommunicationWait

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

SEQUENCE_MASK = (1 << 48) - 1


class Collectives(Source):
    """A Python kernel at the BackendSelect dispatch key, which every c10d operation passes.

    It redispatches with that key removed (`call_boxed` would hold the GIL and can deadlock with gloo). What Python
    waits for is seen at `Work.wait`; what DDP waits for in C++ is the end of its backward.
    """

    name = "collectives"
    emits = (Collective, CommunicationWait, CommunicationCode)
    stage = "communication"

    def install(self, agent: Agent) -> None:
        import torch
        import torch.distributed as dist

        if not dist.is_available():
            raise RuntimeError("torch was built without torch.distributed")
        self._agent = agent
        self._patches = Patches()
        self._sequences: dict[int, int] = {}
        self._last = 0
        self._default = agent.name("group:default")
        self._shapes: dict[Any, int] = {}
        self._world: Any = None
        key = torch._C.DispatchKeySet(torch._C.DispatchKey.BackendSelect)
        self._library: Any = torch.library.Library("c10d", "IMPL")
        for full_name in torch._C._dispatch_get_all_op_names():
            if full_name.startswith("c10d::"):
                short = full_name[6:]
                operation = getattr(getattr(torch.ops.c10d, short), "default", None)
                if operation is not None:
                    with guard(f"observing {full_name}"):
                        self._library.impl(short, self._kernel(operation, short, key), "BackendSelect", with_keyset=True)
        self._watch_waits()
        self._watch_groups()

    def remove(self) -> None:
        self._patches.undo()
        self._library._destroy()

    def _kernel(self, operation: Any, short: str, key: Any) -> Any:
        agent = self._agent
        name = agent.name(short.rstrip("_"))
        redispatch = operation.redispatch
        two_sided = short in ("send", "recv_", "recv_any_source_")

        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            if agent.ended:
                return redispatch(keyset - key, *args, **kwargs)
            t0 = monotonic_ns()
            try:
                if agent.ring is None:
                    agent.open()
                mine = agent.thread == get_ident()
                a, size, c = self._describe(args, two_sided)
                if mine and agent.in_backward:
                    agent.backward_collectives += 1
            except Exception as error:  # noqa: BLE001
                swallow("describing a collective", error)
                mine, a, size, c = True, 0, 0, 0
            t1 = monotonic_ns()
            if mine and agent.in_backward:
                agent.backward_last_enter = t1
            result = redispatch(keyset - key, *args, **kwargs)
            t2 = monotonic_ns()
            try:
                self._last = a
                put = agent.put if mine else agent.thread_put()
                put(t1, t2 - t1, 30, name, agent.step, a, size, c)
                if mine:
                    agent.own_ns += t1 - t0 + monotonic_ns() - t2
            except Exception as error:  # noqa: BLE001
                swallow("recording a collective", error)
            return result

        return kernel

    def _describe(self, args: Any, two_sided: bool) -> tuple[int, int, int]:
        agent = self._agent
        group = self._group(args)
        sequence = self._sequences[group] = self._sequences.get(group, -1) + 1
        size = elements = 0
        shape_key = []
        for tensor in _tensors(args):
            count = tensor.numel()
            elements += count
            size += count * tensor.element_size()
            shape_key.append((tensor.dtype, tensor.shape))
        shape = self._shapes.get(key := tuple(shape_key[:8]))
        if shape is None:
            text = " ".join(f"{str(dtype).removeprefix('torch.')}{list(dims)}" for dtype, dims in key)
            shape = self._shapes[key] = agent.name(text or "()")
        site = agent.site(2)
        flags = bool(agent.in_backward) << 56 | two_sided << 57
        return group << 48 | sequence, size, site | shape << 16 | min(elements, (1 << 24) - 1) << 32 | flags

    def _group(self, args: Any) -> int:
        """Name id of the process group; asked only where there is more than one."""
        world = self._world
        if world is None:
            world = self._world = sys.modules["torch.distributed.distributed_c10d"]._world
        if len(world.pg_map) <= 1:
            return self._default
        import torch

        for value in args:
            if isinstance(value, torch.ScriptObject):
                with guard("naming a process group"):
                    group = torch._C._distributed_c10d.ProcessGroup.unbox(value)
                    default = world.default_pg
                    if default is not None and group.group_name == default.group_name:
                        return self._default
                    return self._agent.name(f"group:{group.group_name}")
        return self._default

    def _watch_waits(self) -> None:
        import torch.distributed as dist
        from torch.distributed import distributed_c10d

        agent = self._agent
        work = distributed_c10d.Work
        self._patches.replace(work, "wait", self._waiting(work.wait, agent.name("wait")))
        ddp: Any = sys.modules.get("torch.nn.parallel.distributed")
        if ddp is not None:
            wrapper = ddp.DistributedDataParallel
            broadcast = wrapper._distributed_broadcast_coalesced
            self._patches.replace(
                wrapper, "_distributed_broadcast_coalesced", self._waiting(broadcast, agent.name("broadcast buffers"))
            )
            self._patches.replace(wrapper, "register_comm_hook", self._hooking(wrapper.register_comm_hook))
        functional: Any = sys.modules.get("torch.distributed._functional_collectives")
        if functional is not None:
            waiter = functional.wait_tensor
            self._patches.replace(functional, "wait_tensor", self._waiting(waiter, agent.name("wait_tensor")))
        self._patches.replace(dist, "barrier", self._waiting(dist.barrier, agent.name("barrier")))

    def _waiting(self, original: Any, name: int) -> Any:
        agent = self._agent
        phase = agent.name("communication")

        @wraps(original)
        def wait(*args: Any, **kwargs: Any) -> Any:
            if agent.ended or agent.waiting or agent.ring is None or agent.thread != get_ident():
                return original(*args, **kwargs)
            before, agent.phase = agent.phase, phase
            agent.waiting = True
            t1 = monotonic_ns()
            try:
                return original(*args, **kwargs)
            finally:
                t2 = monotonic_ns()
                agent.waiting = False
                agent.phase = before
                try:
                    agent.put(t1, t2 - t1, 31, name, agent.step, self._last, 0, agent.site())
                    agent.own_ns += monotonic_ns() - t2
                except Exception as error:  # noqa: BLE001
                    swallow("recording a wait", error)

        return wait

    def _hooking(self, original: Any) -> Any:
        """register_comm_hook with the user's hook timed: its code is a part of communication."""
        agent = self._agent

        @wraps(original)
        def register(model: Any, state: Any, hook: Any) -> Any:
            with guard("describing a communication hook"):
                code = getattr(hook, "__code__", None)
                from rankscope.capture.callsite import describe, is_library

                if code is not None and not is_library(code):
                    hook = self._timed_hook(hook, agent.name(describe(code, code.co_firstlineno)))
            return original(model, state, hook)

        return register

    def _timed_hook(self, hook: Any, name: int) -> Any:
        agent = self._agent

        @wraps(hook)
        def timed(state: Any, bucket: Any) -> Any:
            t1 = monotonic_ns()
            try:
                return hook(state, bucket)
            finally:
                t2 = monotonic_ns()
                try:
                    buffer = bucket.buffer()
                    put = agent.put if agent.thread == get_ident() else agent.thread_put()
                    put(t1, t2 - t1, 32, name, agent.step, 0, buffer.numel() * buffer.element_size(), 0)
                except Exception as error:  # noqa: BLE001
                    swallow("recording a communication hook", error)

        return timed

    def _watch_groups(self) -> None:
        from torch.distributed import distributed_c10d

        agent = self._agent
        for name in ("init_process_group",):
            original = getattr(distributed_c10d, name)

            @wraps(original)
            def joining(*args: Any, _original: Any = original, **kwargs: Any) -> Any:
                result = _original(*args, **kwargs)
                with guard("joining a process group"):
                    agent.open()
                    agent.describe()
                return result

            self._patches.replace(distributed_c10d, name, joining)
            self._patches.replace(sys.modules["torch.distributed"], name, joining)


def _tensors(args: Any) -> list[Any]:
    """The input tensors of a c10d operation: the last tensor or flat list of tensors among its first arguments."""
    found: list[Any] = []
    for value in args[:2]:
        if hasattr(value, "numel"):
            found = [value]
        elif isinstance(value, (list, tuple)) and value and hasattr(value[0], "numel"):
            found = list(value)
    return found
