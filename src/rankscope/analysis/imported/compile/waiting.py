"""Compiled graphs that use the result of a collective without waiting for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankscope.analysis.imported.compile.digest import CompileDigest, Unwaited, at, located, ranks_of, who
from rankscope.base.finding import Cost, Evidence, Finding

MOST = 12
"""Graphs that are named."""


def missing_waits(logs: Sequence[CompileDigest], all_ranks: tuple[int, ...]) -> Iterator[Finding]:
    """Graphs whose code has fewer waits than collectives.

    Where the graph was planned with as few, its caller waits, as it may. Where it was planned with more, the generated
    code is not what was planned: sure. Where no plan is logged, waits may stand in other graphs: only a remark, and
    none where other graphs have that many to spare.
    """
    sure: list[tuple[CompileDigest, Unwaited]] = []
    perhaps: list[tuple[CompileDigest, Unwaited]] = []
    for log in logs:
        unplanned = [one for one in log.unwaited if one.planned_waits is None]
        sure += [(log, one) for one in log.unwaited if one.planned_waits is not None and one.planned_waits > one.waits]
        if sum(one.collectives - one.waits for one in unplanned) > log.spare_waits:
            perhaps += [(log, one) for one in unplanned]
    if sure:
        yield _finding(sure, all_ranks, sure=True)
    elif perhaps:
        yield _finding(perhaps, all_ranks, sure=False)


def _finding(found: list[tuple[CompileDigest, Unwaited]], all_ranks: tuple[int, ...], *, sure: bool) -> Finding:
    found = sorted(found, key=lambda pair: pair[1].waits - pair[1].collectives)
    logs = list({log.file: log for log, _ in found}.values())
    ranks = ranks_of(logs)
    by_graph: dict[str, list[tuple[CompileDigest, Unwaited]]] = {}
    for log, one in found:
        by_graph.setdefault(one.graph, []).append((log, one))
    lacking = [f"{own[0][1].collectives - own[0][1].waits} in graph {graph}" for graph, own in by_graph.items()]
    more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
    evidence = []
    for graph, own in list(by_graph.items())[:MOST]:
        one, seen = own[0][1], ranks_of([log for log, _ in own])
        planned = f", planned {one.planned_waits}" if one.planned_waits is not None else ""
        counts = f"{one.collectives} collectives, {one.waits} waits{planned}"
        text = f"waits that graph {graph} lacks ({counts}; {at(one.place)})"
        evidence.append(Evidence(text, one.collectives - one.waits, "count", seen))
    first = found[0][1]
    return Finding(
        cause="missing-collective",
        severity="warning" if sure else "info",
        confidence=0.75 if sure else 0.35,
        title=f"compiled code on {who(logs)} does not wait for its collectives: "
        f"{'planned waits' if sure else 'waits'} are missing, {', '.join(lacking[:3])}{more}"
        f"{'' if sure else '; they may stand outside of compiled code'}"[:300],
        ranks=ranks,
        all_ranks=len(ranks) > 1 and ranks == all_ranks,
        phase="communication",
        component=f"graph {first.graph}",
        location=located(first.place),
        first_step=None,
        last_step=None,
        cost=Cost(None, None, None),
        evidence=tuple(evidence),
        next=(
            "compare the generated code of the graph (tlparse, inductor_output_code) with its collective schedule: a "
            "result that is read before its collective has ended may be wrong",
            "run the function uncompiled, and compare the results",
        ),
    )
