"""All traces of one job side by side, and how findings speak of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.analysis.imported.device_traces.clocks import Clocks, clocks_of
from rankscope.analysis.imported.device_traces.digest import TraceDigest
from rankscope.analysis.imported.device_traces.lateness import Lateness, lateness_of
from rankscope.analysis.imported.device_traces.matching import Matched, matched
from rankscope.analysis.wording import numbered
from rankscope.base.finding import Cost


@dataclass(frozen=True, slots=True)
class Traces:
    """What findings are made from. Ranks are given by position in `digests`."""

    digests: tuple[TraceDigest, ...]
    world_size: int | None
    groups: tuple[Matched, ...]
    lateness: tuple[Lateness, ...]
    clocks: Clocks | None

    def ranks(self, positions: Sequence[int]) -> tuple[int, ...]:
        """Global ranks; none where files do not say. One lone trace that says nothing is rank 0's."""
        known = [self.digests[position].rank for position in positions]
        if self._lone:
            return (0,)
        return tuple(rank for rank in known if rank is not None)

    def all_ranks(self, positions: Sequence[int]) -> bool:
        """Whether these are all that were seen of a job of several."""
        return len(positions) == len(self.digests) > 1 and None not in [digest.rank for digest in self.digests]

    def named(self, positions: Sequence[int]) -> str:
        """`rank 1`, `all ranks`; of traces without ranks their files."""
        if self.all_ranks(positions):
            return "all ranks"
        ranks = self.ranks(positions)
        if len(ranks) == len(positions):
            return numbered(ranks)
        names = [self.digests[position].file.rsplit("/", 1)[-1] for position in positions]
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")

    def apart(self, positions: Sequence[int]) -> list[list[int]]:
        """The positions that one finding can speak of: ranks of one job together, files without ranks each alone."""
        together = [position for position in positions if self.digests[position].rank is not None]
        alone = [[position] for position in positions if self.digests[position].rank is None]
        return ([together] if together else []) + alone

    def steps(self, positions: Sequence[int]) -> tuple[int | None, int | None]:
        """First and last step of these traces."""
        numbers = [number for position in positions for number in self.digests[position].step_numbers]
        return min(numbers, default=None), max(numbers, default=None)

    def cost(
        self, positions: Sequence[int], share: float, gain: float | None = None, step_ns: float | None = None
    ) -> Cost:
        """Of something that takes a share of the window on the worst of these ranks; with `step_ns` of steps that
        long."""
        lengths = [
            digest.window_ns / len(digest.step_numbers) for at in positions if (digest := self.digests[at]).step_numbers
        ]
        basis = step_ns if step_ns is not None else max(lengths, default=None)
        return Cost(share * basis / 1e6 if basis is not None else None, min(1.0, share), gain)

    @property
    def _lone(self) -> bool:
        only = self.digests[0] if len(self.digests) == 1 else None
        return only is not None and only.rank is None and self.world_size in (None, 1)


def side_by_side(digests: Sequence[TraceDigest], world_size: int | None) -> Traces:
    """Traces of one job, at most one of each rank."""
    ranked = [digest for digest in digests if digest.rank is not None]
    groups = matched(ranked) if len(ranked) == len(digests) else []
    return Traces(
        tuple(digests), world_size, tuple(groups), tuple(lateness_of(groups)), clocks_of(groups)
    )
