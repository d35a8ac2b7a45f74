"""Python tracebacks, put together line by line, also where ranks write at the same time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from rankscope.base.user_code import is_library
from rankscope.records.imported.log_lines import EXCEPTION, LogEvent, Place

START: Final = "(most recent call last)"
FRAME: Final = '  File "'
_FRAME: Final = re.compile(r'^\W*File "([^"\n]{1,500})", line (\d{1,9})(?:, in (.{1,200}))?')
_LATER_FRAME: Final = re.compile(r'File "([^"\n]{1,500})", line (\d{1,9}), in ([\w<>.]+)')
_RICH_FRAME: Final = re.compile(r"^\s*│ (\S[^│\n]{0,500}?):(\d{1,9}) in ([\w<>.]{1,200})\s*│?\s*$")
"""In the boxes that rich draws around a traceback."""
_OF_GROUP: Final = re.compile(r"^ *(?:\+ |\+-\+-+ |(?:\| ?)+)")
"""What stands before the lines of an exception group."""
_END: Final = re.compile(r"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?:: (?P<message>.*)|:?\s*$)")
SAYS_MORE: Final = "DataLoader "
"""Begins what names the reason though it is the last of a chain: the first one is an empty queue."""
CHAIN: Final = " exception"
"""In both lines that stand between the tracebacks of a chain."""
_CHAIN: Final = ("The above exception was the direct cause", "During handling of the above exception")
_CAUGHT: Final = re.compile(r"Caught \w+ in DataLoader worker process")
LAUNCHERS: Final = ("bin/torchrun", "bin/accelerate", "bin/deepspeed", "bin/composer", "bin/ray", "bin/lightning")
"""Programs that installers write beside the interpreter; they are nobody's code."""
MOST_OPEN: Final = 4096
MOST_STRAY: Final = 60
"""Lines of others between two of a traceback before it is given up."""
MOST_MESSAGE: Final = 600


@dataclass(slots=True)
class _Open:
    line: int
    frames: int = 0
    place: Place | None = None
    """Innermost line of the user's so far."""
    last: Place | None = None
    to_the_top: bool = False
    in_loader: bool = False
    stray: int = 0
    chained: bool = False
    ends: list[str] = field(default_factory=list)


class Tracebacks:
    """All tracebacks that are being written, by whoever writes them (`key`: a rank, a prefix)."""

    def __init__(self) -> None:
        self._open: dict[object, _Open] = {}
        self._chained: set[object] = set()
        self._in_loader: set[object] = set()
        self.passed_on: tuple[Place | None] | None = None
        """Where the exception that ended a chain was raised, when the last line ended one."""

    def waits(self) -> bool:
        """Whether a traceback is open, or one may be chained to the last."""
        return bool(self._open) or bool(self._chained)

    def take(self, key: object, message: str, number: int) -> Iterator[LogEvent]:
        """Events of the tracebacks that end with this line."""
        message = _OF_GROUP.sub("", message, count=1)
        self.passed_on = None
        if START in message:
            if len(self._open) < MOST_OPEN:
                old = self._open.get(key)
                self._open[key] = _Open(number, chained=key in self._chained, in_loader=key in self._in_loader)
                if old is not None and old.frames and old.place is not None:
                    self._open[key].place = old.place  # two ranks at once, without prefixes
                    self._open[key].to_the_top = old.to_the_top
            self._chained.discard(key)
            self._in_loader.discard(key)
            return
        if message.startswith(_CHAIN):
            self._chained.add(key)
            return
        one = self._open.get(key)
        if one is None and _FRAME.match(message) is not None and message[:1] == " ":
            one = self._open[key] = _Open(number, frames=1)  # its beginning was cut off
        if one is None:
            return
        if (frame := _FRAME.match(message) or _LATER_FRAME.search(message) or _RICH_FRAME.match(message)) is not None:
            one.stray = 0
            self._frame(one, Place(frame[1], int(frame[2]), (frame[3] or "").strip()))
            return
        text = message.strip()
        if not text or (message[:1] in " \t" and not (one.frames and _end_of_indented(message))):
            one.stray += not text
            return
        end = _END.match(text)
        if end is None or not one.frames:
            one.stray += 1
            if one.stray > MOST_STRAY:
                del self._open[key]
            return
        del self._open[key]
        said = end["message"] or ""
        if _CAUGHT.search(said):
            self._in_loader.add(key)  # the original one follows, and says where
            return
        if one.chained and not said.startswith(SAYS_MORE):
            self.passed_on = (one.place,)
            return  # the first of a chain is what happened; the later ones pass it on
        if end["type"].endswith("ExceptionGroup"):
            return  # those that it holds follow
        yield LogEvent(
            kind=EXCEPTION,
            line=one.line,
            text=f"{end['type'].rsplit('.', 1)[-1]}: {said}"[:MOST_MESSAGE] if said else end["type"],
            name=end["type"],
            place=one.place or None,
            to_the_top=one.to_the_top,
            in_loader=one.in_loader,
        )

    @staticmethod
    def _frame(one: _Open, place: Place) -> None:
        one.to_the_top = one.to_the_top or (one.frames == 0 and place.function == "<module>")
        one.frames += 1
        one.last = place
        one.in_loader = one.in_loader or "/torch/utils/data/_utils/worker.py" in place.file
        if not is_library(place.file) and "/torch/" not in place.file and not place.file.endswith(LAUNCHERS):
            one.place = place


def _end_of_indented(message: str) -> bool:
    """Whether an indented line ends a traceback that is indented itself, as in the table of torchrun."""
    text = message.strip()
    found = _END.match(text)
    return found is not None and found["type"].rsplit(".", 1)[-1].endswith(("Error", "Exception")) and (
        found["message"] is not None
    )
