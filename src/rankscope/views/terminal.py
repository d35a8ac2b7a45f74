"""The report on a terminal: first what is wrong and where, then where a step's time goes, last how it was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from rankscope.base.finding import Finding, Location
from rankscope.report.report import Report, first_problem
from rankscope.views.attempts import attempt_rows, changed_text
from rankscope.views.layout import (
    clean,
    field,
    pad,
    print_lines,
    shorten_end,
    shorten_middle,
    table,
    to_text,
    wrap,
)
from rankscope.views.model_tables import INPUT_HEAD, LAYER_HEAD, input_rows, layer_rows
from rankscope.views.quantities import ratio_text, share_text, time_text, value_text
from rankscope.views.sentences import (
    advice_when_not_examined,
    cost_text,
    counted,
    exits_text,
    headline,
    healthy_text,
    measured_texts,
    place_text,
    ranks_text,
    run_text,
    step_text,
    steps_text,
    sure_text,
    why_not_examined,
)
from rankscope.views.tables import RunRow, render_compare, render_runs, run_row

__all__ = ["RunRow", "print_report", "render", "render_alert", "render_compare", "render_runs", "run_row"]

MIN_WIDTH = 60
MAX_BUDGET_LINES = 12
"""The rest of the budget is added up in one line."""
MAX_LISTED = 8
"""Files or checks in one list; the rest is counted."""
MAX_NOTES = 24
MAX_LAYERS, MAX_INPUTS = 6, 4
"""Rows of the tables about the model."""
MANY = 3
"""Checks with the same reason: more of them share a line."""
LABEL = 10
"""Columns of the words in front: `cause`, `where`, ..."""

STYLES = {
    "healthy": "bold green",
    "degraded": "bold yellow",
    "failed": "bold red",
    "not-examined": "bold",
    "info": "cyan",
    "warning": "yellow",
    "critical": "bold red",
}


def render(report: Report, width: int = 100, color: bool = False) -> str:
    """The report as text of at most `width` columns (60 at least)."""
    return to_text(report_lines(report, width), max(width, MIN_WIDTH), color)


def print_report(report: Report, console: Console) -> None:
    """Print the report as wide as the console, at most 120 columns."""
    print_lines(report_lines(report, min(console.width, 120)), console)


def render_alert(finding: Finding, width: int | None = None) -> str:
    """One line about a finding while the run goes on; shortened where `width` is given, the place first.

    Of a failure, which somebody waits to understand, as many lines as it takes.
    """
    who = ranks_text(finding.ranks, all_ranks=finding.all_ranks)
    about = filter(None, (finding.severity, finding.cause, who, steps_text(finding.first_step, None)))
    head = clean(f"rankscope: {', '.join(about)}: ")
    place = finding.location
    tail = f" [{place_text(place, shorten_middle(clean(place.file), 40))}]" if place else ""
    if width is not None and finding.kind == "failure":
        return "\n  ".join(wrap(head + clean(finding.title) + clean(tail), width - 2))
    if width is None:
        return head + clean(finding.title) + clean(tail)
    if width - cell_len(head) - cell_len(tail) < 30:
        tail = ""
    return shorten_middle(
        head + shorten_end(clean(finding.title), width - cell_len(head) - cell_len(tail)) + clean(tail), width
    )


def report_lines(report: Report, width: int) -> list[Text]:
    """All lines of the report, each at most `width` columns (60 at least)."""
    width = max(width, MIN_WIDTH)
    shown: set[int] = set()
    sections = (
        _verdict(report, shown, width),
        _attempts(report, width),
        _others("Also", [one for one in report.findings if one.severity != "info"], report, shown, width),
        _others("Noted", [one for one in report.findings if one.severity == "info"], report, shown, width),
        _budget(report, width),
        _model(report, width),
        _traces(report, width),
        _notes(report, width),
        _unused_files(report, width),
        _not_examined(report, width),
        _footer(report, width),
    )
    lines: list[Text] = []
    for section in sections:
        found = list(section)
        if found:
            lines += [*([Text()] if lines else []), *found]
    return lines


def _verdict(report: Report, shown: set[int], width: int) -> Iterator[Text]:
    word = report.verdict.replace("-", " ").upper()
    start = len(word) + 2
    for number, line in enumerate(wrap(headline(report), width - start)):
        head = (word, STYLES[report.verdict]) if number == 0 else " " * len(word)
        yield Text.assemble(head, "  ", (line, "bold"))
    root = first_problem(report)
    if report.verdict == "healthy":
        if healthy_text(report):
            yield from (Text(" " * start + line) for line in wrap(healthy_text(report), width - start))
    elif root is not None and headline(report) == root.title:
        yield from _about(root, report, width, indent=2)
        shown.add(id(root))
        yield from _followers(root, report, shown, width, indent=2)
    elif report.verdict == "not-examined":
        yield from field("why", why_not_examined(report), indent=2, label_width=LABEL, width=width)
        for number, text in enumerate(advice_when_not_examined(report)):
            yield from field("" if number else "do", text, indent=2, label_width=LABEL, width=width)


def _attempts(report: Report, width: int) -> Iterator[Text]:
    """What became of each start of the command, and what changed from one to the next."""
    rows = [[row.number, row.how, row.steps, row.time, row.finding] for row in attempt_rows(report.run.attempts)]
    if rows:
        head = ["", "how", "steps", "time", "first finding"]
        yield _rule("Attempts", width)
        yield from table([head, *rows], right={2, 3}, width=width, shrink=(4, 1))
        yield from (Text(line) for line in wrap(changed_text(report.run.attempts), width))


def _others(title: str, findings: list[Finding], report: Report, shown: set[int], width: int) -> Iterator[Text]:
    """Findings that were not shown yet, each with what follows from it."""
    for number, finding in enumerate(one for one in findings if id(one) not in shown):
        yield _rule(title, width) if number == 0 else Text()
        shown.add(id(finding))
        word = finding.severity
        for at, line in enumerate(wrap(finding.title, width - len(word) - 2)):
            yield Text.assemble((word, STYLES[word]) if at == 0 else " " * len(word), "  ", line)
        yield from _about(finding, report, width, indent=2)
        yield from _followers(finding, report, shown, width, indent=2)


def _followers(finding: Finding, report: Report, shown: set[int], width: int, indent: int) -> Iterator[Text]:
    """What only follows from a finding, in short, indented under it."""
    explained = [one for one in report.findings if one.id in finding.explains and id(one) not in shown]
    if explained:
        yield Text(" " * indent + "follows from it", style="dim")
    for follower in explained:
        if id(follower) in shown:
            continue
        shown.add(id(follower))
        start = indent + 2
        word = follower.severity
        room = max(30, width - start - len(word) - 2)
        for number, line in enumerate(wrap(f"{follower.title} ({follower.cause})", room)):
            head = (word, STYLES[word]) if number == 0 else " " * len(word)
            yield Text.assemble(" " * start, head, "  ", line)
        for evidence in follower.evidence[:1]:
            text = f"{evidence.text}: {value_text(evidence.value, evidence.unit)}"
            for line in wrap(text, room):
                yield Text(" " * (start + len(word) + 2) + line, style="dim")
        yield from _followers(follower, report, shown, width, min(indent + 4, 14))


def _about(finding: Finding, report: Report, width: int, indent: int) -> Iterator[Text]:
    """Cause, place, ranks, steps, cost, evidence and advice of a finding."""

    def line(label: str, text: str, style: str = "") -> list[Text]:
        return field(label, text, indent=indent, label_width=LABEL, width=width, style=style) if text else []

    yield from line("cause", f"{finding.cause} ({finding.kind}), {finding.severity}, {sure_text(finding.confidence)}")
    yield from line("where", _where(finding, width - indent - LABEL))
    who = ranks_text(finding.ranks, all_ranks=finding.all_ranks)
    when = steps_text(finding.first_step, finding.last_step)
    of = f" of {report.run.world_size}" if finding.ranks and not finding.all_ranks and report.run.world_size else ""
    yield from line("who", ", ".join(filter(None, (who + of if who else "", when))))
    yield from line("costs", cost_text(finding.cost), "bold")
    yield from _evidence(finding, indent, width)
    for number, advice in enumerate(finding.next):
        label = "do" if number == 0 else ""
        text = f"{number + 1}. {advice}" if len(finding.next) > 1 else advice
        yield from line(label, text)


def _where(finding: Finding, room: int) -> str:
    place = finding.location
    tail = f", {finding.phase} phase" if finding.phase else ""
    if place is None:
        return f"{finding.component or ''}{tail}".removeprefix(", ")
    component = finding.component or ""
    if component.endswith(place.function):
        # `JpegDataset.__getitem__` says more than `__getitem__`.
        place = Location(place.file, place.line, component)
    elif component:
        tail = f" ({component}){tail}"
    fixed = cell_len(clean(place_text(place, "-") + tail)) - 1
    return place_text(place, shorten_middle(clean(place.file), max(24, room - fixed))) + tail


def _evidence(finding: Finding, indent: int, width: int) -> Iterator[Text]:
    """One line a value: the text, and the value at the same column for all of them."""
    texts = [
        f"{one.text} ({ranks_text(one.ranks)})" if one.ranks and not finding.all_ranks else one.text
        for one in finding.evidence
    ]
    values = [clean(value_text(one.value, one.unit)) for one in finding.evidence]
    value_width = max(map(cell_len, values))
    room = max(20, width - indent - LABEL - value_width - 2)
    text_width = min(room, max(cell_len(clean(text)) for text in texts))
    for number, (text, value) in enumerate(zip(texts, values, strict=True)):
        first, *rest = wrap(text, text_width)
        label = pad("evidence" if number == 0 else "", LABEL)
        yield Text.assemble(
            " " * indent, (label, "dim"), pad(first, text_width), "  ", (pad(value, value_width, right=True), "bold")
        )
        for more in rest:
            yield Text(" " * (indent + LABEL) + more)


def _budget(report: Report, width: int) -> Iterator[Text]:
    budget = sorted(report.step.budget, key=lambda line: -line.ms)
    takes = step_text(report)
    if not budget:
        if takes and report.verdict != "healthy":
            where = "" if report.files else "; the records do not show where the time goes"
            yield Text(f"{takes}{where}", style="dim")
        return
    yield _rule(f"Where the mean step of {time_text(sum(line.ms for line in budget))} goes", width)
    head, rest = budget[:MAX_BUDGET_LINES], budget[MAX_BUDGET_LINES:]
    rows = [(line.phase, f"rank {line.rank}", line.ms, line.share) for line in head]
    if rest:
        rows.append((f"{len(rest)} smaller", "", sum(line.ms for line in rest), sum(line.share for line in rest)))
    yield from _bars(rows, width)
    note = "waiting is charged to the rank and phase that was waited for"
    for line in wrap(note if not takes or report.verdict == "healthy" else f"{takes}; {note}", width):
        yield Text(line, style="dim")
    # Below 5 % there is nothing that evening out would gain; beside a finding, a second gain would only confuse.
    if (report.whatif.slowdown or 0) >= 1.05 and first_problem(report) is None:
        yield from (Text(line, style="dim") for line in wrap(_whatif(report), width))


def _bars(rows: Sequence[tuple[str, str, float, float]], width: int) -> Iterator[Text]:
    phase_width = min(24, max(cell_len(clean(row[0])) for row in rows))
    rank_width = max(len(row[1]) for row in rows)
    room = width - phase_width - rank_width - 9 - 7 - 2 * 4
    largest = max(row[3] for row in rows) or 1.0
    for phase, rank, ms, share in rows:
        yield Text.assemble(
            pad(phase, phase_width),
            f"  {rank:<{rank_width}}  {time_text(ms):>9}  {share_text(share):>7}  ",
            (_bar(share / largest, room), "cyan"),
        )


def _bar(part: float, width: int) -> str:
    """A bar of `part` of `width` columns, to an eighth of a column."""
    eighths = max(0, round(part * width * 8))
    full, rest = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def _whatif(report: Report) -> str:
    slowdown = report.whatif.slowdown
    assert slowdown is not None
    text = f"without its unusually long operations and uneven ranks, the run would be {ratio_text(slowdown)} as fast"
    worst = max((report.whatif.by_rank or {}).items(), key=lambda item: item[1], default=None)
    if worst is not None and worst[1] > 1.005:
        text += f"; rank {worst[0]} alone accounts for {ratio_text(worst[1])}"
    return text


def _model(report: Report, width: int) -> Iterator[Text]:
    """The largest layers and the batches in figures; the HTML report has all of them."""
    model = report.model
    if model is None or not (model.layers or model.inputs):
        return
    left_out = max(0, len(model.layers) - MAX_LAYERS)
    title = f"Model: the {MAX_LAYERS} largest of {len(model.layers)} parameters" if left_out else "Model"
    yield _rule(title, width)
    if model.layers:
        largest = sorted(range(len(model.layers)), key=lambda i: -model.layers[i].elements)[:MAX_LAYERS]
        rows = layer_rows(model)
        shown = [LAYER_HEAD, *(rows[i] for i in sorted(largest))]
        yield from table(shown, right={1, 2, 3, 4}, width=width, shrink=(0,))
    if model.inputs:
        shown = [INPUT_HEAD, *input_rows(model)[:MAX_INPUTS]]
        yield Text()
        yield from table(shown, right={2, 3, 4, 5, 6, 7}, width=width, shrink=(0, 1))
    for text in model.advice:
        yield from (Text(line) for line in wrap(text, width))


def _traces(report: Report, width: int) -> Iterator[Text]:
    if not report.traces:
        return
    yield _rule("Device time in the traces", width)
    room = width - 5 - 10 - 5 * 9
    beside = room >= 16  # else the file gets a line of its own
    heads = ("compute", "exp.comm", "exp.mem", "idle", "hidden")
    yield Text(_trace_line("trace" if beside else "", "rank", "window", heads, width), style="dim")
    for trace in report.traces:
        shares = (
            trace.compute_share,
            trace.exposed_communication_share,
            trace.exposed_memory_share,
            trace.idle_share,
            trace.hidden_communication_share,
        )
        if not beside:
            yield Text(shorten_middle(clean(trace.file), width))
        cells = tuple("-" if share is None else share_text(share) for share in shares)
        rank = "-" if trace.rank is None else str(trace.rank)
        window = time_text(trace.window_us / 1e3)
        yield Text(_trace_line(trace.file if beside else "", rank, window, cells, width))
    for line in wrap(
        "exp.: nothing else runs meanwhile; hidden: share of communication during which compute runs", width
    ):
        yield Text(line, style="dim")


def _notes(report: Report, width: int) -> Iterator[Text]:
    """What the files hold."""
    if report.notes:
        yield _rule("In the files", width)
    for text in report.notes[:MAX_NOTES]:
        first, *rest = wrap(text, width - 2)
        yield Text(first)
        yield from (Text("  " + line) for line in rest)
    yield from _more(len(report.notes) - MAX_NOTES, "line", width)


def _trace_line(name: str, rank: str, window: str, cells: Sequence[str], width: int) -> str:
    numbers = "".join(pad(cell, 9, right=True) for cell in cells)
    line = f"{pad(rank, 5, right=True)}{pad(window, 10, right=True)}{numbers}"
    return pad(name, width - cell_len(line)) + line


def _unused_files(report: Report, width: int) -> Iterator[Text]:
    unused = [file for file in report.files if not file.used]
    if not unused:
        return
    yield _rule(f"Not used: {len(unused)} of {counted(len(report.files), 'file')}", width)
    for file in unused[:MAX_LISTED]:
        path_width = min(40, width // 2 - 4)
        yield from field(
            pad(file.path, path_width),
            file.why_not or "no reason given",
            indent=2,
            label_width=path_width + 2,
            width=width,
        )
    yield from _more(len(unused) - MAX_LISTED, "file", width)


def _not_examined(report: Report, width: int) -> Iterator[Text]:
    if not report.not_examined:
        return
    yield _rule(f"Not examined: {counted(len(report.not_examined), 'check')}", width)
    common, count = Counter(one.why for one in report.not_examined).most_common(1)[0]
    alone = [one for one in report.not_examined if count <= MANY or one.why != common]
    rows = [(one.detector, f"needs {one.needs}: {one.why}" if one.needs else one.why) for one in alone]
    if count > MANY:
        rows.append((f"{count} {'others' if alone else 'checks'}", common))
    name_width = min(32, max(cell_len(clean(name)) for name, _ in rows) + 2)
    rows = [(shorten_end(clean(name), name_width - 2), text) for name, text in rows]
    for name, text in rows[:MAX_LISTED]:
        yield from field(name, text, indent=2, label_width=name_width, width=width)
    listed = sum(count if name.startswith(f"{count} ") else 1 for name, _ in rows[:MAX_LISTED])
    yield from _more(len(report.not_examined) - listed, "check", width)


def _more(count: int, noun: str, width: int) -> Iterator[Text]:
    if count > 0:
        more = f"  and {count} more {noun}{'s' * (count > 1)}, listed in the JSON and HTML report"
        yield Text(more[:width], style="dim")


def _footer(report: Report, width: int) -> Iterator[Text]:
    """How it was measured: items that fit share a line, none is left out."""
    yield Text("─" * width, style="dim")
    exits = exits_text(report.run.exits)
    yield from _packed([run_text(report.run), f"ended with {exits}" if exits else ""], width)
    yield from _packed(measured_texts(report), width, "yellow" if report.lost.records else "dim")


def _packed(items: list[str], width: int, style: str = "dim") -> Iterator[Text]:
    line = ""
    for item in filter(None, map(clean, items)):
        if line and cell_len(line) + 3 + cell_len(item) > width:
            yield Text(line, style=style)
            line = ""
        first, *rest = wrap(f"{line} · {item}" if line else item, width)
        line = first
        for more in rest:
            yield Text(line, style=style)
            line = more
    if line:
        yield Text(line, style=style)


def _rule(title: str, width: int) -> Text:
    title = shorten_middle(clean(title), width - 2)
    return Text.assemble((title, "bold"), " ", ("─" * (width - cell_len(title) - 1), "dim"))
