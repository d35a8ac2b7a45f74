"""Functions that are compiled so often, or for so long, that it is worth a change."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from rankscope.analysis.imported.compile.digest import CompileDigest, Function, at, located, ranks_of, who
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.imported.compile_log import CodePlace

MANY = 8
"""Compilations of one function: torch's own limit, after which it gives the function up."""
COSTLY_S = 30.0
"""Seconds in compilations after the second: about what a large model takes once. Less is not worth a change of code."""
MOST = 3
"""Functions that are named."""


def recompilations(logs: Sequence[CompileDigest], all_ranks: tuple[int, ...]) -> Iterator[Finding]:
    """The functions of which there is too much, the most expensive first."""
    found: dict[CodePlace | None, list[tuple[CompileDigest, Function]]] = defaultdict(list)
    for log in logs:
        for function in log.functions:
            if _reached(function) or function.compilations >= MANY or (function.recompile_s or 0.0) >= COSTLY_S:
                found[function.place].append((log, function))
    ordered = sorted(found.items(), key=lambda item: -max(f.recompile_s or 0.0 for _, f in item[1]))
    for place, own in ordered[:MOST]:
        yield _finding(place, own, all_ranks)


def _reached(function: Function) -> bool:
    """Whether torch has given it up; one compilation again is not a sign of anything."""
    return function.limit is not None and function.compilations >= max(function.limit, 3)


def _finding(
    place: CodePlace | None, own: Sequence[tuple[CompileDigest, Function]], all_ranks: tuple[int, ...]
) -> Finding:
    logs = [log for log, _ in own]
    ranks = ranks_of(logs)
    most = max(f.compilations for _, f in own)
    times = [f.recompile_s for _, f in own if f.recompile_s is not None]
    reasons: Counter[str] = Counter()
    for _, function in own:
        reasons.update(dict(function.reasons))
    reason = reasons.most_common(1)[0][0] if reasons else "the log does not say why"
    limit = next((f.limit for _, f in own if _reached(f)), None)
    took = f" (all but the first two take {max(times):.3g} s)" if times else ""
    evidence = [Evidence(f"compilations of {at(place)}, on the rank with the most", most, "count", ranks)]
    if times:
        evidence.append(Evidence("time in all but the first two", max(times), "s", ranks))
    evidence += [Evidence(f"times this guard failed: {text}", n, "count", ranks) for text, n in reasons.most_common(3)]
    if limit is not None:
        text = "the recompile limit is reached: from then on it runs uncompiled"
        evidence.append(Evidence(text, limit, "count", ranks))
    return Finding(
        cause="recompilation",
        severity="warning",
        confidence=0.85,
        title=f"{at(place)} is compiled {most} times on {who(logs)}{took}: {reason}"[:300],
        ranks=ranks,
        all_ranks=len(ranks) > 1 and ranks == all_ranks,
        phase=None,
        component=f"torch.compile: {reason}"[:200],
        location=located(place),
        first_step=None,
        last_step=None,
        cost=Cost(None, None, None),
        evidence=tuple(evidence),
        next=(
            "torch.compile(..., dynamic=True), or mark the changing dimension with torch._dynamo.mark_dynamic",
            "pad inputs to a few fixed sizes; keep changing Python values and objects out of the compiled function",
        ),
    )
