"""From tables to one answer: who digests which table, and what all examiners say together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rankscope.analysis.imported import examiners
from rankscope.analysis.imported.examiner import Answer, Digest, Examiner, Replayed, Shares
from rankscope.analysis.roots import arrange
from rankscope.base.finding import Finding
from rankscope.base.guard import swallow
from rankscope.base.plugins import load_all
from rankscope.records.imported.table import Table


@dataclass(frozen=True, slots=True)
class Kept:
    """A digest and the name of the examiner that made it."""

    examiner: str
    digest: Digest


@dataclass(frozen=True, slots=True)
class Together:
    """What all files say."""

    findings: tuple[Finding, ...]
    """Arranged: the root cause first."""
    answers: tuple[Answer, ...]
    """In the order of the examiners."""

    @property
    def shares(self) -> tuple[Shares, ...]:
        return tuple(one for answer in self.answers for one in answer.shares)

    @property
    def replayed(self) -> Replayed | None:
        return next((answer.replayed for answer in self.answers if answer.replayed is not None), None)

    @property
    def world_size(self) -> int | None:
        known = [answer.world_size for answer in self.answers if answer.world_size is not None]
        return max(known, default=None)

    @property
    def unused(self) -> dict[str, str]:
        return {file: why for answer in self.answers for file, why in answer.unused.items()}


@lru_cache(maxsize=1)
def _examiners() -> dict[str, type[Examiner]]:
    return {cls.__name__: cls for cls in load_all(examiners, Examiner, entry_points=True)}


def digested(table: Table) -> Kept | None:
    """What is kept of a table; None where nobody reads its kind."""
    for name, cls in _examiners().items():
        if isinstance(table, cls.reads):
            return Kept(name, cls().digest(table))
    return None


def examine(kept: Sequence[Kept], world_size: int | None, others: Sequence[Finding] = ()) -> Together:
    """Everything that the digests of all files say, together with what is known otherwise (`others`)."""
    by_examiner: dict[str, list[Digest]] = defaultdict(list)
    for one in kept:
        by_examiner[one.examiner].append(one.digest)
    answers = []
    for name, cls in _examiners().items():
        digests = by_examiner.get(name)
        if not digests:
            continue
        try:
            answers.append(cls().examine(digests, world_size))
        except Exception as error:  # noqa: BLE001  one examiner that fails does not take the others' findings away
            swallow(f"examining with {name}", error)
            answers.append(Answer(examined=False, not_examined=((name, "", f"{type(error).__name__}: {error}"),)))
    findings = [*others, *(finding for answer in answers for finding in answer.findings)]
    return Together(arrange(findings), tuple(answers))
