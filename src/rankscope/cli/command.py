"""The seam for a new command."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from typing import ClassVar


class Command(ABC):
    """One word after `rankscope`. The class's docstring's first line is its help; `example` is shown below it."""

    name: ClassVar[str]
    example: ClassVar[str]
    internal: ClassVar[bool] = False
    """True: not shown in the help; other commands start it."""

    @abstractmethod
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare options; raises nothing."""

    @abstractmethod
    def run(self, args: argparse.Namespace) -> int:
        """Do it and return the exit code; `UserError` becomes one line and exit code 2."""
