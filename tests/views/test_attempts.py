"""What is said about the attempts of a run."""

from dataclasses import replace

import pytest

from rankscope.report.report import Attempt, from_json, to_json
from rankscope.views.attempts import attempt_rows, changed_text
from rankscope.views.html.page import render_html
from rankscope.views.terminal import render

HUNG = Attempt(1, "hang", 31.2, 1, None, 44, "uneven-inputs", "rank 1 ran out of batches", (1,))
DIED = Attempt(2, "failure", 12.0, None, "SIGKILL", 60, "dead-rank", "rank 0 was killed", (0,))
DONE = Attempt(3, "done", 48.0, 0, None, 200)


def test_one_attempt_is_not_told():
    assert (attempt_rows([HUNG]), changed_text([HUNG])) == ([], "")


@pytest.mark.parametrize(
    "attempts, expected",
    [
        ([HUNG, DONE], "attempt 1 stopped at step 44: uneven-inputs on rank 1; attempt 3 came to its end"),
        (
            [HUNG, replace(HUNG, number=2), DONE],
            "attempts 1 and 2 stopped at step 44: uneven-inputs on rank 1; attempt 3 came to its end",
        ),
        ([HUNG, replace(HUNG, number=2)], "the same failure again, at the same step (44): uneven-inputs on rank 1"),
        (
            [HUNG, replace(HUNG, number=2), replace(HUNG, number=3, steps=61)],
            "the same failure each time, at another step (44, then 61): uneven-inputs on rank 1",
        ),
        (
            [HUNG, replace(HUNG, number=2, ranks=(0,))],
            "the same failure again, on another rank: uneven-inputs on rank 1, then on rank 0",
        ),
        ([HUNG, DIED], "attempt 1 stopped at step 44: uneven-inputs on rank 1; attempt 2 stopped at step 60: "
         "dead-rank on rank 0"),
        (
            [HUNG, DIED, replace(HUNG, number=3)],
            "the same failure as in attempt 1, at the same step (44): uneven-inputs on rank 1",
        ),
        (
            [Attempt(1, "failure", 1.0, 1), Attempt(2, "interrupted", 9.0, None, "SIGINT", 12)],
            "attempt 1 stopped: no cause is shown; attempt 2 was interrupted at step 12",
        ),
        ([HUNG, Attempt(2)], "attempt 1 stopped at step 44: uneven-inputs on rank 1; attempt 2 goes on"),
    ],
)  # fmt: skip
def test_what_changed(attempts, expected):
    assert changed_text(attempts) == expected


def test_the_terminal_has_one_line_an_attempt_and_one_about_what_changed(made_up):
    report = replace(made_up.HEALTHY, run=made_up.run(attempts=(HUNG, DIED, DONE)))
    text = render(report)
    start = text.index("Attempts")

    assert (
        text[start : text.index("\n\n", start)]
        == """\
Attempts ───────────────────────────────────────────────────────────────────────────────────────────
   how              steps    time  first finding
1  hung, was ended     44  31.2 s  uneven-inputs on rank 1
2  failed, SIGKILL     60  12.0 s  dead-rank on rank 0
3  came to its end    200  48.0 s
attempt 2 stopped at step 60: dead-rank on rank 0; attempt 3 came to its end"""
    )
    assert "Attempts" not in render(made_up.HEALTHY)


def test_the_page_has_the_same_lines(made_up):
    report = replace(made_up.HEALTHY, run=made_up.run(attempts=(HUNG, DONE)))
    page = render_html(report)

    assert '<h2 id="attempts">Attempts</h2>' in page
    assert "<td>hung, was ended</td>" in page
    assert "Attempt 1 stopped at step 44: uneven-inputs on rank 1; attempt 3 came to its end." in page
    assert 'id="attempts"' not in render_html(made_up.HEALTHY)


def test_a_report_keeps_them(made_up):
    report = replace(made_up.HEALTHY, run=made_up.run(attempts=(HUNG, DONE)))

    assert from_json(to_json(report), "report.json") == report
