"""What an operation does, from its name: who waits for whom at it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

FORWARD, BACKWARD = "forward", "backward"
SEND, RECEIVE = "send", "recv"
Role = tuple[str, str]
"""(direction of the pass, send or receive)"""

_PASS: Final = re.compile(r"(forward|backward|fwd|bwd)[- ]?(send|recv|receive)")
_COLLECTIVE: Final = re.compile(
    r"all-?reduce|all-?gather|reduce-?scatter|all-?to-?all|broadcast|barrier|\bsync\b|-sync|\bcomm\b|-comm\b"
)
_OPTIMIZER: Final = re.compile(r"optimi[sz]er|\badam\b|inner-step")
_CLIP: Final = re.compile(r"clip|grad-?norm")
_TENSOR: Final = re.compile(r"^tp-|tensor-parallel|layer-?norm|sequence-parallel|^sp-")
_APART: Final = re.compile(r"wgrad|weight|forward-backward")
"""Compute that no transfer waits for: gradients of weights alone, and both passes in one operation."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of operation."""

    name: str
    compute: str
    """`forward` or `backward` for the compute of a micro-batch, else empty."""
    roles: tuple[Role, ...] = ()
    """What it sends and receives between stages; Megatron fuses a send and a receive into one operation."""
    replicas: bool = False
    """All data-parallel replicas take part, and none is done before the last has come."""
    stages: bool = False
    """All stages that have it take part."""
    communicates: bool = False
    """Its ideal is the median, not the mean: a few slow transfers must not make the ideal slow."""

    @property
    def synchronises(self) -> bool:
        return bool(self.roles) or self.replicas or self.stages

    @property
    def group(self) -> str:
        """The name under which slowdowns by operation are told: both ends of a transfer are one."""
        return f"{self.roles[0][0]}-pp-comm" if self.roles else self.name


@lru_cache(maxsize=4096)
def kind(name: str) -> Kind:
    """What an operation of this name does. A name that says nothing is work of its own rank."""
    plain = re.sub(r"[\s_./:]+", "-", name.strip().lower())
    roles = tuple((_whole(p), RECEIVE if d.startswith("rec") else SEND) for p, d in _PASS.findall(plain))
    if roles:
        return Kind(name, "", roles=roles, communicates=True)
    if _CLIP.search(plain):
        # The norm of all gradients: a sum over every rank of the job.
        return Kind(name, "", replicas=True, stages=True, communicates=True)
    if _COLLECTIVE.search(plain):
        if _TENSOR.search(plain):
            return Kind(name, "", communicates=True)
        if "embedding" in plain:
            return Kind(name, "", stages=True, communicates=True)
        return Kind(name, "", replicas=True, stages="barrier" in plain, communicates=True)
    direction = re.match(r"(forward|backward|fwd|bwd)\b", plain)
    if direction and not _OPTIMIZER.search(plain) and not _APART.search(plain):
        return Kind(name, _whole(direction[1]))
    return Kind(name, "")


def _whole(direction: str) -> str:
    return FORWARD if direction.startswith("f") else BACKWARD
