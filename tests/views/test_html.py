import dataclasses
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from rankscope.base.finding import Cost, Evidence, Location
from rankscope.report.details import Details, Heat, Marker, Snippet, StepTimeline, TimelineSpan, step_times_of
from rankscope.report.model import LayerFigures, ModelFigures, PredictionFigures
from rankscope.report.report import BudgetLine, InputFile, NotExamined, Report, Run
from rankscope.views.html import render_html
from rankscope.views.html.budget import Phase, budget_rows, phases_of
from rankscope.views.html.cards import QuotedLine, cards_of, quoted_lines

NAMES = ["healthy", "slow-loading", "slow-link", "checkpoint-stall", "failed", "not-examined", "imported"]
VOID = {"meta", "br"}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

HOSTILE = "</script></style><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">'\"&"


class Page(HTMLParser):
    """Text, elements and what is left open of a page."""

    def __init__(self, html):
        super().__init__()
        self.open, self.wrong, self.elements, self.words = [], [], [], []
        self.feed(html)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.words.append(data)


def hostile(made_up):
    """The made-up report with the same hostile text wherever a user's text can stand."""
    bad = HOSTILE
    finding = dataclasses.replace(
        made_up.SLOW_LOADING.findings[0],
        title=bad + "`" + bad + "`",
        component=bad,
        phase=bad,
        location=Location(bad, 2, bad),
        cost=Cost(1.0, 0.1, 0.1),
        evidence=(Evidence(bad, 1.0, bad, (1,)),),
        next=(bad + "`" + bad,),
    )
    report = dataclasses.replace(
        made_up.SLOW_LOADING,
        run=made_up.run(id=bad, name=bad, backend=bad, started=bad, fingerprint=bad, command=(bad,)),
        findings=(finding, dataclasses.replace(finding, id="f9", explains=())),
        step=dataclasses.replace(made_up.SLOW_LOADING.step, budget=(BudgetLine(bad, 0, 5.0, 1.0),)),
        files=(InputFile(bad, bad, False, bad),),
        not_examined=(NotExamined(bad, bad, bad),),
        clock=dataclasses.replace(made_up.CLOCK, method=bad),
        overhead=dataclasses.replace(made_up.OVERHEAD, method=bad),
        lost=dataclasses.replace(made_up.LOST, records=3, why=bad),
    )
    details = Details(
        steps=(StepTimeline(1, "slowest", 0, (TimelineSpan(0, 0, 10, bad, bad, "work", True),)),),
        heat=Heat((0,), (1,), ((2.0,),), bad),
        sources={bad: (Snippet(1, (bad, bad, bad)),)},
        step_ms=step_times_of([1, 2], {0: [1.0, None]}),
        markers=(Marker(1, bad),),
    )
    return report, details


@pytest.mark.parametrize("name", NAMES)
def test_every_element_is_closed_and_no_other_file_is_needed(made_up, name):
    html = render_html(made_up.REPORTS[name], made_up.DETAILS)
    page = Page(html)

    assert (page.open, page.wrong) == ([], [])
    assert [tag for tag, attrs in page.elements if {"src", "href", "srcset"} & set(attrs)] == []
    assert re.findall(r"https?://|url\(|@import|@font-face", html) == []


def test_spans_that_are_not_drawn_are_said(made_up):
    first = made_up.DETAILS.steps[0]
    details = dataclasses.replace(made_up.DETAILS, steps=(dataclasses.replace(first, left_out=1234),))

    assert "The last 1234 spans of this step are not drawn." in Page(render_html(made_up.SLOW_LOADING, details)).text
    assert "not drawn" not in Page(render_html(made_up.SLOW_LOADING, made_up.DETAILS)).text


@pytest.mark.parametrize("name", NAMES)
def test_a_page_says_all_that_the_report_says(made_up, name):
    report = made_up.REPORTS[name]
    text = Page(render_html(report, Details())).text

    said = [one.title for one in report.findings]
    said += [one.text for finding in report.findings for one in finding.evidence]
    said += [one.why for one in report.not_examined] + [one.path for one in report.files]
    said += [one.why_not for one in report.files if one.why_not] + [one.file for one in report.traces]
    plain = text.replace("`", "")
    assert [one for one in said if one.replace("`", "") not in plain] == []


def test_the_first_heading_is_the_root_cause(made_up):
    html = render_html(made_up.SLOW_LINK)

    assert re.search(r"<h1[^>]*>(.*?)</h1>", html)[1] == (
        "the network path of rank 1 moves 94 MB/s where its peer&#39;s moves 1.1 GB/s; 212 ms of every step"
    )


def test_what_was_not_drawn_leaves_no_empty_frame(made_up):
    page = Page(render_html(made_up.SLOW_LOADING, Details()))

    assert [tag for tag, _ in page.elements if tag in ("canvas", "figure")] == []


def test_hostile_text_stays_text(made_up):
    report, details = hostile(made_up)

    page = Page(render_html(report, details))

    assert (page.open, page.wrong) == ([], [])
    assert [tag for tag, _ in page.elements if tag in ("script", "img", "style")] == ["style", "script", "script"]
    assert [attrs for _, attrs in page.elements if any(name.startswith("on") for name in attrs)] == []


def test_only_the_script_of_the_page_may_run(made_up):
    page = Page(render_html(made_up.HEALTHY))
    policy = next(attrs["content"] for tag, attrs in page.elements if "http-equiv" in attrs)

    assert re.fullmatch(
        r"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-[\w+/=]+'; base-uri 'none'; "
        r"form-action 'none'",
        policy,
    )


def test_a_file_name_that_is_no_utf8_can_be_written(made_up):
    report = dataclasses.replace(made_up.HEALTHY, files=(InputFile("bad\udcff", "", True),))

    assert b"bad?" in render_html(report).encode()


def test_code_between_backticks_is_set_as_code(made_up):
    html = render_html(made_up.CHECKPOINT_STALL)

    assert "<li>save asynchronously: <code>torch.distributed.checkpoint.async_save</code></li>" in html


def test_a_users_capital_letters_stay_as_they_are():
    details = Details(heat=Heat((0,), (1,), ((2.0,),), "time in the MyPhase phase"))

    assert "Time in the MyPhase phase." in Page(render_html(Report(Run("r"), "healthy"), details)).text


def test_the_guilty_line_is_quoted_with_its_neighbours_and_without_common_indentation():
    details = Details(sources={"a.py": (Snippet(1, ("x",)), Snippet(10, ("    if x:", "\ty()", "", "    z()")))})

    assert quoted_lines(Location("a.py", 11, "f"), details) == (
        QuotedLine(10, "if x:", False),
        QuotedLine(11, "y()", True),
        QuotedLine(12, "", False),
        QuotedLine(13, "z()", False),
    )


def test_a_line_that_was_not_saved_is_not_quoted():
    assert quoted_lines(Location("a.py", 99, "f"), Details(sources={"a.py": (Snippet(1, ("x",)),)})) == ()


def test_every_finding_has_one_card_under_the_one_that_explains_it(made_up):
    cards = cards_of(made_up.SLOW_LOADING, made_up.DETAILS)

    assert [(card.finding.id, [one.finding.id for one in card.followers]) for card in cards] == [
        ("f1", ["f2"]),
        ("f3", []),
    ]


def test_bars_of_the_ranks_add_up_to_the_whole_step(made_up):
    rows = budget_rows(made_up.SLOW_LOADING)

    pieces = [piece for row in rows for piece in row.segments]
    assert [row.label for row in rows] == ["rank 2", "rank 3", "rank 1", "rank 0"]
    assert pieces[0].start == 0
    assert [a.start + a.width for a in pieces[:-1]] == pytest.approx([b.start for b in pieces[1:]])
    assert pieces[-1].start + pieces[-1].width == pytest.approx(100)


def test_ranks_without_a_row_of_their_own_share_the_last(made_up):
    lines = made_up.budget(*(("data", rank, 1.0) for rank in range(100)))
    report = dataclasses.replace(made_up.HEALTHY, step=dataclasses.replace(made_up.HEALTHY.step, budget=lines))

    rows = budget_rows(report)

    assert (len(rows), rows[-1].label, rows[-1].ms) == (13, "88 more ranks", 88.0)


def test_phases_of_the_user_come_last_with_colours_of_their_own(made_up):
    lines = made_up.budget(("tokenise", 0, 1.0), ("data", 0, 1.0), ("augment", 0, 1.0))
    report = dataclasses.replace(made_up.HEALTHY, step=dataclasses.replace(made_up.HEALTHY.step, budget=lines))

    assert phases_of(report, Details()) == (
        Phase("data", "phase-data"),
        Phase("augment", "phase-extra-0"),
        Phase("tokenise", "phase-extra-1"),
    )


def test_missing_values_reach_the_drawings_as_null(made_up):
    html = render_html(made_up.HEALTHY, Details(heat=Heat((0,), (1, 2), ((None, float("nan")),), "")))

    drawings = json.loads(re.search(r'id="drawings">(.*?)</script>', html)[1])
    assert drawings["heat"] == {"ranks": [0], "steps": [1, 2], "values": [[None, None]], "what": ""}


@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser")
def test_a_real_browser_draws_the_page_and_runs_nothing_of_the_users(made_up, tmp_path):
    report, details = hostile(made_up)
    (tmp_path / "page.html").write_text(render_html(report, details))
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync"
    )
    command = [
        *(CHROMIUM, *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"),
        (tmp_path / "page.html").as_uri(),
    ]

    dom = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    page = Page(dom)
    title = re.search(r"<title>(.*?)</title>", dom, re.DOTALL)[1]
    drawn = [attrs.get("style") for tag, attrs in page.elements if tag == "canvas"]
    assert title.startswith("degraded: &lt;/script&gt;")
    assert drawn == ["height: 62px;", "height: 80px;", "height: 238px;"]


def test_the_model_and_what_files_hold_are_on_the_page():
    model = ModelFigures(
        layers=(LayerFigures("head.weight", 640, 0.5, 0.25, 0.01),),
        predictions=(PredictionFigures("Net", 10, -1.0, 2.0, 0.75, True),),
        advice=("the batch size fits",),
    )
    page = Page(render_html(Report(run=Run("job"), verdict="healthy", model=model, notes=("2 files <b>",))))

    words = " ".join(page.words)
    assert (page.open, page.wrong) == ([], [])
    shown = ("Parameters (1)", "head.weight", "640", "1.0 %", "Predictions (1)", "75 %", "batch size fits", "files <b>")
    assert [text for text in shown if text not in words] == []
