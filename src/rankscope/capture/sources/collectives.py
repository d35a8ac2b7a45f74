"""Every collective of this process, whoever calls it: user code, DDP's reducer, FSDP2, functional collectives."""

from __future__ import annotations

import sys
from functools import wraps
from inspect import signature
from sys import _getframe
from threading import get_ident
from time import monotonic_ns, sleep
from typing import TYPE_CHECKING, Any

from rankscope.base.guard import guard, swallow
from rankscope.capture.boot import after_import
from rankscope.capture.callsite import describe, is_library, user_frame
from rankscope.capture.listeners import tell
from rankscope.capture.patches import Patches
from rankscope.capture.source import Source
from rankscope.records.collective import Collective, CommunicationCode, CommunicationWait, PendingCollective

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

FUNCTIONAL = "torch.distributed._functional_collectives"
GLOO_REST_S = 0.05
TWO_SIDED = ("send", "recv_", "recv_any_source_")


class Collectives(Source):
    """A Python kernel at the BackendSelect dispatch key, which every c10d operation passes.

    It redispatches with that key removed (`call_boxed` would hold the GIL and can deadlock with gloo). What Python
    waits for is seen at `Work.wait`; what DDP waits for in C++ is the end of its backward.
    """

    name = "collectives"
    emits = (Collective, PendingCollective, CommunicationWait, CommunicationCode)
    stage = "communication"

    def install(self, agent: Agent) -> None:
        import torch
        import torch.distributed as dist

        if not dist.is_available():
            raise RuntimeError("torch was built without torch.distributed")
        self._agent = agent
        self._patches = Patches()
        self._default = agent.name("group:default")
        self._shapes: dict[Any, tuple[int, int, int]] = {}
        self._groups: dict[str, int] = {}
        self._world = sys.modules["torch.distributed.distributed_c10d"]._world
        self._unbox = torch._C._distributed_c10d.ProcessGroup.unbox
        self._tensor = torch.Tensor
        self._forget()
        agent.in_child.append(self._forget)
        agent.at_end.append(self._rest)
        key = torch._C.DispatchKeySet(torch._C.DispatchKey.BackendSelect)
        library: Any = torch.library.Library  # torch does not annotate it
        self._library = library("c10d", "IMPL")
        for full_name in torch._C._dispatch_get_all_op_names():
            short = full_name.removeprefix("c10d::")
            if short not in (full_name, "check_for_nan"):
                operation = getattr(getattr(torch.ops.c10d, short), "default", None)
                if operation is not None:
                    with guard(f"observing {full_name}"):
                        kernel = self._two_sided(operation, short, key) if short in TWO_SIDED else None
                        kernel = kernel or self._kernel(operation, short, key)
                        self._library.impl(short, kernel, "BackendSelect", with_keyset=True)
        self._watch_waits()
        self._watch_groups()

    def _forget(self) -> None:
        self._sequences: dict[int, int] = {}
        self._last = self._last_site = 0

    def _rest(self) -> None:
        """Give gloo's threads a moment to let go of the last operations: one that still does so while Python ends
        aborts the process (seen with torch 2.13, with and without us, in a tenth of the runs of a second)."""
        distributed: Any = sys.modules["torch.distributed"]
        if self._last and distributed.is_initialized() and distributed.get_backend() == "gloo":
            sleep(GLOO_REST_S)

    def remove(self) -> None:
        self._agent.at_end.remove(self._rest)
        self._agent.in_child.remove(self._forget)
        self._patches.undo()
        self._library._destroy()

    def _kernel(self, operation: Any, short: str, key: Any) -> Any:
        agent = self._agent
        name = agent.name(short.rstrip("_"))
        redispatch = operation._handle.redispatch_boxed
        describe, default, groups = self._describe, self._default, self._world.pg_map
        reduces = short == "allreduce_"
        pending = PendingCollective.code

        def kernel(keyset: Any, *args: Any) -> Any:
            if agent.ended:
                return redispatch(keyset - key, *args)
            timing = agent.timing
            t0 = monotonic_ns() if timing else 0
            mine = agent.thread == get_ident()
            try:
                if agent.ring is None:
                    agent.open()
                a, size, c = describe(self._group(args) if len(groups) > 1 else default, args, 0)
            except Exception as error:  # noqa: BLE001
                swallow("describing a collective", error)
                a = size = c = 0
            if agent.in_backward:
                if reduces and mine and agent.sampled:
                    tell(agent.before_reduction, "looking at a reduction", args)
                t1 = agent.backward_last_enter = monotonic_ns()
            else:
                t1 = monotonic_ns()
            if mine:
                agent.pending(t1, 0, pending, name, agent.step, a, size, c)
            result = redispatch(keyset - key, *args)
            t2 = monotonic_ns()
            try:
                put = agent.put if mine else agent.thread_put()
                put(t1, t2 - t1, Collective.code, name, agent.step, a, size, c)
                if timing and mine:
                    agent.own_ns += t1 - t0 + monotonic_ns() - t2
                    agent.hidden_ns += agent.kernel_ns
                    agent.hooks += 1
            except Exception as error:  # noqa: BLE001
                swallow("recording a collective", error)
            return result

        return kernel

    def _two_sided(self, operation: Any, short: str, key: Any) -> Any:
        """The kernel of send and recv: counted for each pair and direction, as other ranks know nothing of them."""
        agent = self._agent
        name = agent.name(short.rstrip("_"))
        redispatch = operation._handle.redispatch_boxed

        def kernel(keyset: Any, *args: Any) -> Any:
            if agent.ended:
                return redispatch(keyset - key, *args)
            try:
                if agent.ring is None:
                    agent.open()
                a, size, c = self._describe(self._pair(short, args), args, 1)
            except Exception as error:  # noqa: BLE001
                swallow("describing a send or receive", error)
                a = size = c = 0
            t1 = monotonic_ns()
            result = redispatch(keyset - key, *args)
            t2 = monotonic_ns()
            try:
                put = agent.put if agent.thread == get_ident() else agent.thread_put()
                put(t1, t2 - t1, Collective.code, name, agent.step, a, size, c)
                if agent.timing:
                    agent.own_ns += monotonic_ns() - t2
                    agent.hidden_ns += 2 * agent.kernel_ns
                    agent.hooks += 1
            except Exception as error:  # noqa: BLE001
                swallow("recording a send or receive", error)
            return result

        return kernel

    def _describe(self, group: int, args: Any, two_sided: int) -> tuple[int, int, int]:
        """The three words of a record. A group's operations are counted by each rank in the same order."""
        agent = self._agent
        sequence = self._sequences[group] = self._sequences.get(group, -1) + 1
        self._last = a = group << 48 | sequence
        in_backward = agent.in_backward
        if in_backward:
            agent.backward_collectives += 1
        site = 0
        if agent.sites:
            site = agent.backward_site if in_backward else agent.site(2)
        self._last_site = site
        key = _shapes(args, self._tensor)
        known = self._shapes.get(key)
        if known is None:
            known = self._shapes[key] = self._new_shape(args)
        shape, size, elements = known
        if not agent.sites:
            shape = 0
        return a, size, site | shape << 16 | elements << 32 | in_backward << 56 | two_sided << 57

    def _new_shape(self, args: Any) -> tuple[int, int, int]:
        """(name id, bytes, elements) of the input tensors of an operation."""
        tensors = _inputs(args, self._tensor)
        shown = (f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}" for x in tensors[:8])
        elements = sum(int(x.numel()) for x in tensors)
        size = sum(int(x.numel()) * x.element_size() for x in tensors)
        return self._agent.name(" ".join(shown) or "()"), size, min(elements, (1 << 24) - 1)

    def _group(self, args: Any) -> int:
        """Name id of the process group; asked only where there is more than one. Equal on all ranks: torch names
        groups so that they are."""
        if len(self._world.pg_map) <= 1:
            return self._default
        for value in args:
            if type(value).__name__ == "ScriptObject":
                try:
                    name = self._unbox(value).group_name
                except RuntimeError:  # another object of c10d: a reduction
                    continue
                return self._groups.get(name) or self._new_group(name)
        return self._default

    def _new_group(self, name: str) -> int:
        default = self._world.default_pg
        if default is not None and name == default.group_name:
            return self._default
        groups = self._world.pg_group_ranks.items()  # those of others have no name here
        members = next((ranks for group, ranks in groups if getattr(group, "group_name", None) == name), ())
        # Who belongs to it is a part of its name: of those that never come, nothing else would tell.
        known = self._groups[name] = self._agent.name(f"group:{name}|{','.join(map(str, sorted(members)))}")
        return known

    def _pair(self, short: str, args: Any) -> int:
        """Name id of one direction between two ranks of a group."""
        group = next(x for x in args if type(x).__name__ == "ScriptObject")
        mine = self._unbox(group).rank()
        other = "?" if short == "recv_any_source_" else args[2]
        pair = f"{mine}>{other}" if short == "send" else f"{other}>{mine}"
        number = self._group(args)
        base = next((name for name, id in self._groups.items() if id == number), "default")
        return self._agent.name(f"group:{base}:{pair}")

    def _watch_waits(self) -> None:
        import torch
        from torch.distributed import distributed_c10d

        agent = self._agent
        self._is_compiling = torch.compiler.is_compiling
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
        after_import(FUNCTIONAL, self._watch_functional)

    def _watch_functional(self) -> None:
        agent = self._agent
        if not agent.ended:
            functional = sys.modules[FUNCTIONAL]
            waiter = functional.wait_tensor
            self._patches.replace(functional, "wait_tensor", self._waiting(waiter, agent.name("wait_tensor")))

    def _waiting(self, original: Any, name: int) -> Any:
        agent = self._agent
        phase = agent.name("communication")
        is_compiling = self._is_compiling

        @wraps(original)
        def wait(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or agent.ended or agent.waiting or agent.ring is None or agent.thread != get_ident():
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
                    frame = _getframe(1)
                    # torch itself waits at the end of a synchronous call, whose place is known already.
                    site = (
                        self._last_site
                        if is_library(frame.f_code) and self._last_site
                        else agent.frame_site(user_frame(1))
                    )
                    agent.put(t1, t2 - t1, CommunicationWait.code, name, agent.step, self._last, 0, site)
                    if agent.timing:
                        agent.own_ns += monotonic_ns() - t2
                        agent.hidden_ns += agent.wrapper_ns
                        agent.hooks += 1
                except Exception as error:  # noqa: BLE001
                    swallow("recording a wait", error)

        return wait

    def _hooking(self, original: Any) -> Any:
        """register_comm_hook with the user's hook timed: its code is a part of communication."""
        agent = self._agent

        @wraps(original)
        def register(model: Any, state: Any, hook: Any) -> Any:
            agent.reduces_by_hook = True
            with guard("describing a communication hook"):
                code = _code_of(hook)
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
                    size = buffer.numel() * buffer.element_size()
                    put(t1, t2 - t1, CommunicationCode.code, name, agent.step, 0, size, 0)
                except Exception as error:  # noqa: BLE001
                    swallow("recording a communication hook", error)

        return timed

    def _watch_groups(self) -> None:
        from torch.distributed import distributed_c10d

        agent = self._agent
        original = distributed_c10d.init_process_group

        parameters = list(signature(original).parameters)

        @wraps(original)
        def joining(*args: Any, **kwargs: Any) -> Any:
            with guard("joining a process group"):
                given = {**dict(zip(parameters, args, strict=False)), **kwargs}
                agent.rank_hint = _number(given.get("rank")), _number(given.get("world_size"))
                agent.open()  # before: ranks may wait in here, and fail
            try:
                result = original(*args, **kwargs)
            except Exception as error:
                with guard("noting why no group was formed"):
                    agent.caught(error)
                raise
            with guard("joining a process group"):
                agent.describe()
            return result

        self._patches.replace(distributed_c10d, "init_process_group", joining)
        self._patches.replace(sys.modules["torch.distributed"], "init_process_group", joining)


def _number(value: Any) -> int:
    """A rank or world size that was given by number; -1: it was not."""
    return value if isinstance(value, int) else -1


def _code_of(hook: Any) -> Any:
    """The code of a function, a partial or an object that can be called."""
    while hasattr(hook, "func"):
        hook = hook.func
    return getattr(hook, "__code__", None) or getattr(type(hook).__call__, "__code__", None)


def _inputs(args: Any, tensor: type) -> list[Any]:
    """The input tensors of a c10d operation: the last tensor or list of tensors among its first two arguments."""
    found: list[Any] = []
    for value in args[:2]:
        if isinstance(value, tensor):
            found = [value]
        elif isinstance(value, (list, tuple)) and value:
            flat = [x for item in value for x in (item if isinstance(item, (list, tuple)) else (item,))]
            if isinstance(flat[0], tensor):
                found = flat
    return found


def _shapes(args: Any, tensor: type) -> tuple[Any, ...]:
    """A key that is equal for equal dtypes and shapes of the inputs."""
    first = args[0]
    if type(first) is list and len(first) == 1 and not isinstance(args[1], (list, tensor)):
        only = first[0]
        if isinstance(only, tensor):
            return (only.shape, only.dtype)  # type: ignore[attr-defined]
    return tuple((x.shape, x.dtype) for x in _inputs(args, tensor))
