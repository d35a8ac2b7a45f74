"""The seam for a new capture source."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rankscope.records.record import Record

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent


class Source:
    """Something in the user's process that writes records.

    `install` hooks in, `remove` undoes it exactly. Both run inside `guard`: an error turns this source off and
    leaves training and the other sources alone. torch is imported inside the functions.
    """

    name: ClassVar[str]
    emits: ClassVar[tuple[type[Record], ...]]
    stage: ClassVar[str] = ""
    """One of `config.STAGES`: the source is installed where the user wants that stage; empty: always."""
    needs: ClassVar[str] = "torch"
    """The module after whose import the source is installed; another one than torch: only if the user imports it."""

    def install(self, agent: Agent) -> None:
        raise NotImplementedError

    def remove(self) -> None:
        raise NotImplementedError
