"""Finds random generators that draw the same numbers in several loader workers, or in every epoch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rankscope.analysis import wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.reading import training_passes
from rankscope.analysis.worker_generators import Generator, draw_the_same, generators
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.batches import RandomState

REPEATING = 0.6
"""Different batches of a stream, as a share of all, where two workers make the same ones (half), with a few at the end
that only one of them came to."""


@dataclass(frozen=True, slots=True)
class _Repeats:
    """What one generator of a rank repeats."""

    position: int
    first: Generator
    workers: int
    """That draw the same in one epoch; 1: none does."""
    of_workers: int
    epochs: int
    """In which a worker draws the same; 1: in none."""


class WorkerRngDuplicated(Detector):
    """Loader workers, or epochs, draw the same random augmentations.

    ## What it is
    Each worker gets a copy of the dataset, and with it of the random generator that the dataset holds. torch seeds the
    global generators of numpy, random and torch in each worker, not those: all workers draw the same numbers, and the
    workers of the next epoch once more. A `worker_init_fn` with a fixed seed does the same to the global ones.

    ## What shows it
    Fingerprints of generators in the workers before the first fetch: equal over workers or epochs, and another one
    after each fetch, so that samples are made with what they draw.

    ## What else looks like it
    A generator that is used once to split the data, or is seeded anew for each sample. An `IterableDataset` whose
    workers shuffle alike and then take different parts. Persistent workers, whose generators go on. Ranks with the same
    seed are not compared.

    ## What to do
    Seed in `worker_init_fn` from `torch.initial_seed()`, which differs by worker and epoch; or draw from
    torch's global generator.
    """

    name = "worker-rng-duplicated"
    needs = (RandomState,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if not any(generators(facts, position) for position in range(facts.size)):
            raise CannotExamine("no loader worker that the run trains with was seen to draw")
        found = [r for position in range(facts.size) for r in _repeats(facts, position)]
        if not found:
            return
        # Held by the dataset first: a global one may be used for something else as well.
        found.sort(key=lambda r: (not r.first.held, -r.workers, -r.epochs))
        worst = found[0]
        positions = tuple(sorted({r.position for r in found}))
        over = [f"{worst.workers} of {worst.of_workers} loader workers"] if worst.workers > 1 else []
        over += [f"{worst.epochs} epochs"] if worst.epochs > 1 else []
        name = worst.first.name if worst.first.held else f"the global generator of {worst.first.name}"
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.95 if worst.first.held or worst.workers > 1 else 0.8,
            title=f"{name} draws the same numbers in {' and in '.join(over)}{wording.at(worst.first.place)}",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="data",
            component=name if worst.first.held else worst.first.dataset,
            location=wording.location(worst.first.place),
            first_step=worst.first.step,
            last_step=None,
            cost=Cost(None, None, None),
            evidence=tuple(_evidence(facts, found)),
            next=(
                "in worker_init_fn seed it with torch.initial_seed(), which differs by worker and epoch",
                "or draw from torch.rand and its kin, which torch seeds in each worker",
            ),
        )


def _evidence(facts: Facts, found: list[_Repeats]) -> Iterator[Evidence]:
    for one in found[:4]:
        ranks = facts.numbers((one.position,))
        if one.workers > 1:
            text = f"workers in which {one.first.name} begins in the same state, of {one.of_workers}"
            yield Evidence(text, float(one.workers), "count", ranks)
        if one.epochs > 1:
            text = f"epochs in which {one.first.name} begins in the same state"
            yield Evidence(text, float(one.epochs), "count", ranks)


def _repeats(facts: Facts, position: int) -> Iterator[_Repeats]:
    by_name: dict[tuple[str, str], list[Generator]] = defaultdict(list)
    for one in generators(facts, position):
        by_name[one.dataset, one.name].append(one)
    for (dataset, _), all_of in by_name.items():
        if all_of[0].iterable and not _equal_batches(facts, position, dataset):
            continue
        workers, of_workers = _most(all_of, lambda g: g.number)
        epochs, _ = _most(all_of, lambda g: g.worker)
        if workers > 1 or epochs > 1:
            yield _Repeats(position, all_of[0], workers, of_workers, epochs)


def _most(all_of: list[Generator], by: Callable[[Generator], int]) -> tuple[int, int]:
    """The most generators of one group that draw the same, and how many there are in that group."""
    groups: dict[int, list[Generator]] = defaultdict(list)
    for one in all_of:
        groups[by(one)].append(one)
    best = (1, len(all_of))
    for group in groups.values():
        same = max(sum(draw_the_same(first, other) for other in group) for first in group)
        best = max(best, (same, len(group)), key=lambda pair: pair[0])
    return best


def _equal_batches(facts: Facts, position: int, dataset: str) -> bool:
    """Whether batches of a stream repeat within a pass: its workers make the same samples."""
    for one in training_passes(facts, position):
        prints = one.of("fingerprint")
        prints = prints[prints > 0]
        if one.dataset == dataset and len(prints) >= 4 and len(set(prints.tolist())) <= REPEATING * len(prints):
            return True
    return False
