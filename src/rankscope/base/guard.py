"""The wall between this package and the user's program: our errors are counted, theirs pass through."""

from __future__ import annotations

from types import TracebackType

RERAISE = False  # tests/conftest.py sets this to True: a bug of ours fails our tests.


class Errors:
    """How many errors of ours were swallowed in this process, and the last one, for the report."""

    count = 0
    last = ""


def swallow(doing: str, error: Exception) -> None:
    """Count and log one error of ours; raise it again while our own tests run."""
    if RERAISE:
        raise error
    Errors.count += 1
    Errors.last = f"{doing}: {type(error).__name__}: {error}"[:300]
    import logging  # here: a Python process below `rankscope run` that never trains must start as fast as ever

    logging.getLogger("rankscope").debug("while %s", doing, exc_info=error)


class guard:
    """`with guard("installing x"):` swallows and counts an error of ours, nothing else."""

    __slots__ = ("doing",)

    def __init__(self, doing: str) -> None:
        self.doing = doing

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        # KeyboardInterrupt and SystemExit belong to the user and pass through.
        if error is None or not isinstance(error, Exception) or RERAISE:
            return False
        swallow(self.doing, error)
        return True
