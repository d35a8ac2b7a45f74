"""Ranks that compile different things: other graphs, other cache outcomes, other collectives in the same graph."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from rankscope.analysis.imported.compile.digest import CompileDigest, Graph, at, located, ranks_of
from rankscope.analysis.wording import numbered
from rankscope.base.finding import Cost, Evidence, Finding

Key = TypeVar("Key", bound=Hashable)
APART_S = 3600.0
"""Ranks of one job begin within the minutes of its start."""
MOST = 8
NOTHING = Cost(None, None, None)


def divergences(by_rank: Mapping[int, CompileDigest]) -> Iterator[Finding]:
    """What differs between ranks, in the logs of at least two."""
    if len(by_rank) < 2:
        return
    schedules = _schedules(by_rank)
    if schedules is not None:
        yield schedules
    camps = _camps({rank: tuple((g.id, g.place) for g in log.graphs) for rank, log in by_rank.items()})
    if len(camps) > 1:
        yield _different_graphs(by_rank, camps)
        return
    missed = _missed(by_rank)
    if missed is not None:
        yield missed


def _camps(by_rank: Mapping[int, Key]) -> list[tuple[Key, tuple[int, ...]]]:
    """Ranks with the same value, the largest camp first."""
    found: dict[Key, list[int]] = defaultdict(list)
    for rank, value in by_rank.items():
        found[value].append(rank)
    ordered = sorted(found.items(), key=lambda camp: (-len(camp[1]), camp[1]))
    return [(value, tuple(sorted(ranks))) for value, ranks in ordered]


def _odd(camps: Sequence[tuple[object, tuple[int, ...]]]) -> tuple[int, ...]:
    """The minority; all where no camp is larger than every other."""
    even = len(camps[0][1]) == len(camps[1][1])
    return tuple(sorted(rank for _, ranks in (camps if even else camps[1:]) for rank in ranks))


def _different_graphs(
    by_rank: Mapping[int, CompileDigest], camps: Sequence[tuple[object, tuple[int, ...]]]
) -> Finding:
    odd = _odd(camps)
    told = []
    evidence = []
    for _, ranks in camps[:MOST]:
        logs = [by_rank[rank] for rank in ranks]
        told.append(f"{len(logs[0].graphs)} on {numbered(ranks)}")
        evidence.append(Evidence(f"compilations on {numbered(ranks)}", len(logs[0].graphs), "count", ranks))
        hits, misses = sum(log.hits for log in logs), sum(log.misses for log in logs)
        if hits or misses:
            evidence.append(Evidence(f"of them out of Inductor's cache on {numbered(ranks)}", hits, "count", ranks))
            evidence.append(Evidence(f"and compiled, as the cache did not have them, on {numbered(ranks)}", misses,
                                     "count", ranks))  # fmt: skip
    starts = [log.start_ns for log in by_rank.values() if log.start_ns is not None]
    apart_s = (max(starts) - min(starts)) / 1e9 if starts else 0.0
    if apart_s > APART_S:
        evidence.append(Evidence("the logs begin apart by: they may be of different runs", apart_s, "s"))
    return Finding(
        cause="recompilation",
        severity="info",
        confidence=0.3 if apart_s > APART_S else 0.6,
        title=f"compile ids differ between ranks: {', '.join(told[:4])}"
        f"{' and other ones' if len(camps) > 4 else ''}"[:300],
        ranks=odd,
        all_ranks=len(odd) == len(by_rank),
        phase=None,
        component="torch.compile",
        location=None,
        first_step=None,
        last_step=None,
        cost=NOTHING,
        evidence=tuple(evidence),
        next=(
            "ranks that compile alone keep the others waiting in collectives: feed all ranks the same sizes, or set "
            "torch._dynamo.config.enable_compiler_collectives",
            "with pipeline parallelism ranks run different code, and this is as it should be",
        ),
    )


def _missed(by_rank: Mapping[int, CompileDigest]) -> Finding | None:
    """Graphs that some ranks had to compile and others got from a cache."""
    outcomes: dict[str, dict[int, str]] = defaultdict(dict)
    for rank, log in by_rank.items():
        for graph in log.graphs:
            if graph.cache:
                outcomes[graph.id][rank] = graph.cache
    differing = [name for name, own in outcomes.items()
                 if any("miss" in c for c in own.values())
                 and any(set(c.split(",")) == {"hit"} for c in own.values())]  # fmt: skip
    if not differing:
        return None
    alone: Counter[int] = Counter()
    for name in differing:
        alone.update(rank for rank, cache in outcomes[name].items() if "miss" in cache)
    ranks = tuple(sorted(alone))
    return Finding(
        cause="slow-start",
        severity="info",
        confidence=0.6,
        title=f"{numbered(ranks)} compiled what other ranks had in their compile cache: {len(differing)} of "
        f"{len(outcomes)} graphs",
        ranks=ranks,
        all_ranks=len(ranks) == len(by_rank),
        phase=None,
        component="torch.compile cache",
        location=None,
        first_step=None,
        last_step=None,
        cost=NOTHING,
        evidence=tuple(Evidence(f"graphs that rank {rank} compiled and others did not", n, "count", (rank,))
                       for rank, n in sorted(alone.items())[:MOST]),
        next=("share the cache between ranks and nodes (TORCHINDUCTOR_CACHE_DIR on local disk, filled before the run, "
              "or the remote cache)",),
    )  # fmt: skip


def _schedules(by_rank: Mapping[int, CompileDigest]) -> Finding | None:
    """The first graph of the same function, with the same compile id, that has other collectives on other ranks."""
    graphs: dict[tuple[str, object], dict[int, Graph]] = {}
    for rank, log in by_rank.items():
        for graph in log.graphs:
            if graph.schedule is not None:
                graphs.setdefault((graph.id, graph.place), {})[rank] = graph
    differing = []
    for own in graphs.values():
        camps = _camps({rank: graph.schedule or () for rank, graph in own.items()})
        if len(camps) > 1:
            differing.append((next(iter(own.values())), camps))
    if not differing:
        return None
    graph, camps = differing[0]
    # The same calls in another order can only be a fault; more of them may be a longer stage of a pipeline.
    order = len({tuple(sorted(schedule)) for schedule, _ in camps}) == 1
    odd = _odd(camps)
    one, other = camps[0][0], camps[1][0]
    place = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    names = [schedule[place] if place < len(schedule) else "nothing more" for schedule in (one, other)]
    told = f"{numbered(camps[0][1])} {names[0]}, {numbered(camps[1][1])} {names[1]}"
    return Finding(
        cause="collective-order-mismatch" if order else "missing-collective",
        severity="warning" if order else "info",
        confidence=0.7 if order else 0.4,
        title=f"compiled graph {graph.id} of {at(graph.place)} has "
        f"{'its collectives in another order' if order else 'other collectives'} on other ranks: at place "
        f"{place + 1} {told}"[:300],
        ranks=odd,
        all_ranks=set(odd) == set(by_rank),
        phase="communication",
        component=f"graph {graph.id}",
        location=located(graph.place),
        first_step=None,
        last_step=None,
        cost=NOTHING,
        evidence=(
            *(Evidence(f"collectives in graph {graph.id} on {numbered(ranks)}", len(schedule), "count", ranks)
              for schedule, ranks in camps[:MOST]),
            Evidence("graphs that differ so", len(differing), "count", ranks_of(tuple(by_rank.values()))),
        ),
        next=(
            "make all ranks of a group compile the same graph: the same sizes, flags and branches on each",
            *(() if order else ("stages of a pipeline differ rightly: compare ranks of one stage",)),
        ),
    )  # fmt: skip
