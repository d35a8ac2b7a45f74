import dataclasses

from rankscope.report.report import Report, Run, Step
from rankscope.views.tables import noise_ms
from rankscope.views.terminal import RunRow, render_compare, render_runs, run_row


def test_a_row_of_the_history_has_the_root_cause(made_up):
    assert run_row(made_up.SLOW_LINK) == RunRow(
        "20260301-101500-resnet",
        "gpt-small",
        "2026-03-01T10:15:00Z",
        96.4,
        2,
        220,
        336.0,
        "degraded",
        "slow-link",
    )


def test_the_history_is_a_table(made_up):
    rows = [run_row(made_up.SLOW_LINK), RunRow("r2", "", None, None, None, None, None, None, None)]

    assert (
        render_runs(rows)
        == """\
run                     name       started        took  ranks    step  verdict
20260301-101500-resnet  gpt-small  03-01 10:15  96.4 s      2  336 ms  degraded: slow-link
r2                                 -                 -      -       -  no report
"""
    )


def test_an_empty_history_says_how_to_begin():
    assert render_runs([]) == "no runs yet; `rankscope run -- COMMAND` makes the first\n"


def test_two_runs_stand_side_by_side_with_what_the_difference_is_worth(made_up):
    assert (
        render_compare(made_up.HEALTHY, made_up.SLOW_LOADING)
        == """\
                      resnet50-imagenet       resnet50-imagenet  ratio
run              20260301-101500-resnet  20260301-101500-resnet
verdict                         healthy                degraded         changed
root cause                            -       slow-data-loading         changed
ranks                                 4                       4
steps                               500                     500
step, median                     128 ms                  185 ms   1.4x  slower by 56.5 ms
step, p95                        132 ms                  203 ms   1.5x
  backward                      61.7 ms                 61.5 ms  1.00x  inside noise
  data                          1.60 ms                 59.1 ms    37x  slower by 57.5 ms
  forward                       40.1 ms                 40.3 ms  1.00x  inside noise
  communication                 14.2 ms                 14.0 ms  0.99x  inside noise
  optimizer                     9.80 ms                 9.90 ms  1.01x  inside noise
  other                         1.20 ms                 1.70 ms   1.4x  inside noise

inside noise: up to 3.70 ms, from the spread of the steps of both runs
"""
    )


def test_without_a_spread_no_difference_is_judged():
    a = Report(Run("a"), "healthy", step=Step(100.0, None, 1))
    b = Report(Run("b"), "healthy", step=Step(200.0, None, 1))

    text = render_compare(a, b)

    assert "step, median        100 ms        200 ms   2.0x\n" in text
    assert "noise unknown: too few timed steps; no difference is judged" in text


def test_a_run_without_a_budget_has_unknown_phases_and_not_zero(made_up):
    bare = dataclasses.replace(made_up.HEALTHY, step=Step(128.0, 130.0, 10))

    line = next(line for line in render_compare(made_up.HEALTHY, bare).splitlines() if line.startswith("  forward"))

    assert line.split() == ["forward", "40.1", "ms", "not", "measured"]


def test_two_quiet_runs_may_differ_by_two_percent():
    assert noise_ms(Step(100.0, 100.0, 500), Step(101.0, 101.0, 500)) == 2.02


def test_few_and_uneven_steps_make_more_noise():
    assert round(noise_ms(Step(100.0, 149.35, 9), Step(100.0, 100.0, 9)), 1) == 37.6
