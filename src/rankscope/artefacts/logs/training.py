"""Lines of training progress: the step, and what stands beside it."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from typing import Final

import numpy as np

from rankscope.records.imported.log_lines import FEW
from rankscope.records.imported.scalar_log import ScalarLog

MOST_POINTS: Final = 1_000_000
"""Of all values of one file."""
_STEP: Final = re.compile(
    r"(?<![a-z])(?:global[_ ]?|current[_ ]?|train(?:ing)?[_ ]?)?(?:steps?|iter(?:ation)?|it"
    r"|batch_idx)[\"']?\s*[:=#]?\s*"
    r"[\[(]?\s*(\d{1,12})(?![\d.]*\s*(?:ms|s\b|sec))",
    re.IGNORECASE,
)
_EPOCH: Final = re.compile(r"\bepoch[\"']?\s*[:=#]?\s*[\[(]?\s*(\d+)(?:\.\d+)?(?:\s*/\s*\d+)?[\])]?", re.IGNORECASE)
_INSIDE: Final = re.compile(r"\[\s*(\d+)\s*/\s*\d+\s*(?:\(|\])")
"""`Train Epoch: 3 [640/60000 (1%)]`, `Epoch: [3][ 10/500]`."""
_NUMBER: Final = r"([-+]?(?:\d{1,20}\.?\d{0,20}(?:e[-+]?\d{1,3})?|\.\d{1,20}|nan|inf(?:inity)?))(?![\w])"
# All that follow are tried only where their word stands: a search over the whole line takes ten times as long.
_LOSS: Final = re.compile(r"loss[\"']?\s*(?:\([a-z ]{0,40}\))?\s*[:=]?\s*(?:tensor\()?" + _NUMBER, re.IGNORECASE)
_BEFORE: Final = re.compile(r"[a-z]{1,20}[ _/.-]{0,3}\Z", re.IGNORECASE)
"""What stands before the word: `val `, `train_`."""
_NOT_TRAINING: Final = re.compile(r"val|eval|test|dev|aux|best|min|max|scale|moe|kl|policy|value|critic|gen|disc", re.I)
_STEP_MS: Final = re.compile(
    r"time(?: per iteration \(ms\)| per step)?[\"']?\s*[:=]?\s*([\d.]{1,20}(?:e[-+]?\d+)?)\s*(?P<unit>ms|s\b|sec)?",
    re.IGNORECASE,
)
_RATE: Final = re.compile(
    r"(?:(?:tok(?:en)?s?|samples?)(?:/s|[ _]per[ _]sec(?:ond)?s?)[\"']?\s*[:=]?\s*([\d.,]{1,20}(?:e[-+]?\d+)?)"
    r"|([\d.,]{1,20})\s*(?:tok(?:en)?s?|samples?)/s)",
    re.IGNORECASE,
)
TAGS: Final = ("train/loss", "step_time", "tokens_per_second")


class Progress:
    """The steps and losses of one file."""

    def __init__(self) -> None:
        self.count = 0
        self.last = -1
        """Step of the last line; lines without one are counted."""
        self.dropped = 0
        self._tag, self._step, self._value, self._time = array("i"), array("q"), array("d"), array("q")
        self._inside = False
        self._losses = 0

    def take(self, line: str, time_ns: int | None) -> bool:
        """Whether the line is one of training progress; keeps what it says."""
        lower = line.lower()
        loss = _loss(line, lower)
        step = _STEP.search(line)
        if loss is None and (step is None or "consumed" not in line):
            return False
        number = self._number(line, step)
        if number is None:
            if not line.lstrip().startswith("{"):
                return False
            number = self._losses  # the Trainer of transformers prints no step
        self.count += 1
        self.last = number
        if loss is not None:
            self._losses += 1
            self._add(0, number, loss, time_ns)
        took = next((m for at in _places(lower, "time") if (m := _STEP_MS.match(line, at)) is not None), None)
        if took is not None and took[1].strip(".") != "":
            self._add(1, number, _float(took[1]), time_ns)
        if ("tok" in lower or "sample" in lower) and (rate := _RATE.search(line)) is not None:
            self._add(2, number, _float((rate[1] or rate[2]).replace(",", "")), time_ns)
        return True

    def _number(self, line: str, step: re.Match[str] | None) -> int | None:
        if step is not None:
            return int(step[1])
        epoch = _EPOCH.search(line)
        if epoch is None or line.lstrip().startswith("{"):
            return None
        return self._losses if _INSIDE.search(line) else int(epoch[1])

    def _add(self, tag: int, step: int, value: float, time_ns: int | None) -> None:
        if len(self._tag) >= MOST_POINTS:
            self.dropped += 1
            return
        self._tag.append(tag)
        self._step.append(step)
        self._value.append(value)
        self._time.append(time_ns if time_ns is not None else self.count)

    def few(self) -> tuple[tuple[int, float], ...]:
        """(step, loss) where there are only a few."""
        if self._losses >= FEW:
            return ()
        rows = zip(self._tag, self._step, self._value, strict=True)
        return tuple((step, value) for tag, step, value in rows if tag == 0)

    def table(self, file: str, rank: int | None) -> ScalarLog | None:
        """The curves; None where no line has a loss."""
        if not self._losses:
            return None
        return ScalarLog(
            file=file, rank=rank, run=file, tags=TAGS, tag=np.frombuffer(self._tag, np.int32),
            step=np.frombuffer(self._step, np.int64), time_ns=np.frombuffer(self._time, np.int64),
            value=np.frombuffer(self._value, np.float64), num_records=self.count, num_damaged=0, truncated_bytes=0,
        )  # fmt: skip


def _loss(line: str, lower: str) -> float | None:
    """A `loss` on its own before one that is part of a longer name."""
    places = [at for at in _places(lower, "loss") if not line[at - 1 : at].isalnum()]
    for joined in (False, True):
        for at in places:
            if (line[at - 1 : at] == "_") is joined and (found := _LOSS.match(line, at)) is not None:
                before = _BEFORE.search(line[max(0, at - 24) : at])
                if before is None or not _NOT_TRAINING.search(before[0]):
                    return _float(found[1])
    return None


def _places(line: str, word: str) -> Iterator[int]:
    at = line.find(word)
    while at >= 0:
        yield at
        at = line.find(word, at + 1)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
