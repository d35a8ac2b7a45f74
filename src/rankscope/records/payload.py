"""What does not fit a slot: names, stacks and descriptions, written once a process and referred to by number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NAME: Final = 1
"""`id` -> a string: a phase, an operation, a call-site `file:line:function`."""
STACK: Final = 2
"""`id` -> name ids of the frames (`file:line:function`), innermost first, joined by spaces."""
PROCESS: Final = 3
"""`id` 0: the process's description (JSON, see `records.process`); the newest wins."""

INVENTORY: Final = 4
"""`id` counts up from 0: the models, parameters and optimizers of the process (JSON, see `records.inventory`)."""


@dataclass(frozen=True, slots=True)
class Payload:
    node: int
    process: int
    kind: int
    id: int
    text: str
