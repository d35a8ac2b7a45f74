import dataclasses
import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from rankscope.base.finding import Location
from rankscope.report.model import LayerFigures, ModelFigures, TensorFigures
from rankscope.report.report import InputFile, Report, Run
from rankscope.views.terminal import print_report, render, render_alert

NAMES = ["healthy", "slow-loading", "slow-link", "checkpoint-stall", "failed", "not-examined", "imported"]


def section(text, start, end):
    lines = text.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith(start))
    last = next((at for at, line in enumerate(lines) if at > first and line.startswith(end)), len(lines))
    return "\n".join(lines[first:last])


def test_what_is_wrong_comes_first_with_place_cost_evidence_and_advice(made_up):
    assert (
        section(render(made_up.SLOW_LOADING), "DEGRADED", "Where")
        == """\
DEGRADED  JpegDataset.__getitem__ on ranks 2-3 decodes every image twice and costs 58 ms of every
          step
  cause     slow-data-loading (performance), warning, 93 % sure
  where     /home/ana/projec…imagenet/loaders/jpeg_dataset.py:41 JpegDataset.__getitem__, data phase
  who       ranks 2-3 of 4, since step 0, last seen at step 499
  costs     58.2 ms (31 %) of every step; fixing it would make the run 1.4x faster
  evidence  wait for the next batch, median (ranks 2-3)                                61.4 ms
            the same wait on the other ranks (ranks 0-1)                               1.30 ms
            samples of the loader workers' stacks that are inside line 41 (ranks 2-3)     71 %
            loader workers (ranks 2-3)                                                       2
  do        1. decode once: keep the image that `verify()` has opened instead of opening it again in
            line 41
            2. raise num_workers from 2 to 5, as on ranks 0 and 1
            3. see `rankscope causes slow-data-loading`
  follows from it
    info  ranks 0 and 1 wait 57 ms of every step in all_reduce for ranks 2 and 3
          (communication-bound)
          wait in all_reduce, median: 57.1 ms

Noted ──────────────────────────────────────────────────────────────────────────────────────────────
info  garbage collection stops rank 0 for 2.1 ms about every ninth step
  cause     gc-pause (performance), info, 80 % sure
  where     other phase
  who       rank 0 of 4, since step 8, last seen at step 494
  costs     230 µs (0.1 %) of every step; fixing it would gain less than 0.5 %
  evidence  pause of generation 2, median (rank 0)  2.10 ms
  do        call gc.freeze() after the first step
"""
    )


def test_a_healthy_run_gets_two_calm_lines_and_its_budget(made_up):
    assert (
        section(render(made_up.HEALTHY), "HEALTHY", "Not examined")
        == """\
HEALTHY  nothing wrong found in 480 steps on 4 ranks
         a step takes 128 ms (p95 132 ms); 3 checks could not be made (below)

Where the mean step of 129 ms goes ─────────────────────────────────────────────────────────────────
backward       rank 2    61.7 ms     48 %  █████████████████████████████████████████████████████████
forward        rank 0    40.1 ms     31 %  █████████████████████████████████████
communication  rank 1    14.2 ms     11 %  █████████████▏
optimizer      rank 3    9.80 ms    7.6 %  █████████
data           rank 0    1.60 ms    1.2 %  █▌
other          rank 0    1.20 ms    0.9 %  █▏
waiting is charged to the rank and phase that was waited for
"""
    )


def test_what_could_not_be_examined_is_never_called_healthy(made_up):
    assert (
        render(made_up.NOT_EXAMINED)
        == """\
NOT EXAMINED  the records at hand allow no verdict; this does not mean that the run is healthy
  why       none of 2 files could be used
  do        give files of a kind that rankscope reads: `rankscope diagnose --help` lists them
            or run it under observation: `rankscope run -- COMMAND`

Not used: 2 of 2 files ─────────────────────────────────────────────────────────────────────────────
  artefacts/202…ith/rank0.pt.trace.json.gz  the file ends after 12,288 bytes inside a string: it was
                                            cut off while it was written
  notes.txt                                 holds no line that a training job writes

Not examined: 1 check ──────────────────────────────────────────────────────────────────────────────
  slow-device  needs kernel times of two ranks or more: no usable trace

────────────────────────────────────────────────────────────────────────────────────────────────────
dump
"""
    )


def test_a_failure_shows_the_first_death_and_the_peers_errors_under_it(made_up):
    assert (
        section(render(made_up.FAILED), "FAILED", "Where")
        == """\
FAILED  rank 1 was killed (SIGKILL) at step 211 while its memory was at the limit of the job
  cause     dead-rank (failure), critical, 99 % sure
  where     backward phase
  who       rank 1 of 4, at step 211
  evidence  memory of the job's cgroup at the last sample (rank 1)  63.7 GiB
            it ended before the first error of a peer by (rank 1)     1.80 s
  do        raise the memory limit of the job above 64 GiB, or lower num_workers on node 0
  follows from it
    critical  ranks 0, 2 and 3 lost their connection to rank 1 (network-error)
              ranks that report 'Connection closed by peer': 3
"""
    )


def test_lost_records_and_exits_stand_in_the_footer(made_up):
    assert (
        section(render(made_up.SLOW_LOADING), "─", "nothing")
        == "─" * 100
        + """
resnet50-imagenet · 4 ranks on 1 node · gloo · 500 steps · 96.4 s
clock: one monotonic clock, error up to 400 ns
overhead: 0.6 %, within the budget of 1.0 % (bare steps in between)
lost: 312 records (ring of rank 2 overrun)"""
    )


def test_traces_are_shown_with_their_shares(made_up):
    assert (
        section(render(made_up.IMPORTED), "Device", "─")
        == """\
Device time in the traces ──────────────────────────────────────────────────────────────────────────
trace                                    rank    window  compute exp.comm  exp.mem     idle   hidden
traces/rank0.json.gz                        0    1.20 s     71 %     18 %    1.0 %     10 %     62 %
traces/rank1.json.gz                        1    1.20 s     70 %     19 %    1.0 %     10 %        -
exp.: nothing else runs meanwhile; hidden: share of communication during which compute runs
"""
    )


def test_many_budget_lines_are_summed_up_so_that_nothing_is_missing(made_up):
    lines = made_up.budget(*((f"phase-{at}", at, 10.0) for at in range(40)))
    report = dataclasses.replace(made_up.HEALTHY, step=dataclasses.replace(made_up.HEALTHY.step, budget=lines))

    shown = section(render(report), "Where", "waiting").splitlines()

    assert len(shown) == 14
    assert shown[-1].startswith("28 smaller              280 ms     70 %  ████")


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("name", NAMES)
def test_no_line_is_wider_than_asked(made_up, name, width):
    assert max(map(cell_len, render(made_up.REPORTS[name], width).splitlines())) <= width


@pytest.mark.parametrize("name", NAMES)
def test_colour_adds_nothing_but_colour(made_up, name):
    report = made_up.REPORTS[name]

    colored = render(report, color=True)

    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == render(report)


@pytest.mark.parametrize("name", NAMES)
def test_every_finding_is_shown_exactly_once(made_up, name):
    report = made_up.REPORTS[name]
    text = " ".join(render(report).split())

    assert [text.count(finding.title) for finding in report.findings] == [1] * len(report.findings)


def test_findings_that_explain_each_other_in_a_circle_are_shown_once(made_up):
    first, second, *_ = made_up.CHECKPOINT_STALL.findings
    circle = (first, dataclasses.replace(second, explains=("f1", "f2", "f9")))
    text = render(dataclasses.replace(made_up.CHECKPOINT_STALL, findings=circle))

    assert [text.count(finding.title) for finding in circle] == [1, 1]


def test_hostile_names_cannot_steer_the_terminal(made_up):
    finding = dataclasses.replace(
        made_up.SLOW_LINK.findings[0],
        title="[red]x[/red] \x1b[2J\x1b]0;owned\x07",
        location=Location("a\x1b[1A" + "/b" * 300, 3, "f\n\rg"),
    )
    text = render(dataclasses.replace(made_up.SLOW_LINK, findings=(finding,)))

    assert {char for char in text if not char.isprintable()} == {"\n"}
    assert text.startswith("DEGRADED  [red]x[/red] �[2J�]0;owned�\n")


def test_a_report_that_knows_nothing_is_still_readable():
    assert render(Report(Run(""), "healthy")) == "\n".join(
        [
            "HEALTHY  nothing wrong found",
            "         no step time was measured",
            "",
            "─" * 100,
            "clock: ranks were not put on one clock · overhead: not measured · lost: not counted",
            "",
        ]
    )


def test_printing_is_as_wide_as_the_console_and_never_wider_than_120(made_up):
    out = io.StringIO()

    print_report(made_up.HEALTHY, Console(file=out, width=300))

    assert out.getvalue() == render(made_up.HEALTHY, 120)


def test_an_alert_is_one_line_with_rank_step_and_place(made_up):
    assert render_alert(made_up.SLOW_LINK.findings[0]) == (
        "rankscope: critical, slow-link, rank 1, since step 61: the network path of rank 1 moves 94 MB/s where its "
        "peer's moves 1.1 GB/s; 212 ms of every step [train.py:88 train_step]"
    )


@pytest.mark.parametrize("width", [40, 80, 100, 140])
def test_an_alert_fits_where_a_width_is_given(made_up, width):
    line = render_alert(made_up.SLOW_LOADING.findings[0], width)

    assert cell_len(line) <= width
    assert line.startswith("rankscope: wa")


def test_what_other_tools_recorded_has_neither_overhead_nor_losses(made_up):
    report = Report(run=Run("job"), verdict="healthy", files=(InputFile("a.json", "kineto", used=True),))

    assert render(report).splitlines() == [
        "HEALTHY  nothing wrong found",
        "",
        "─" * 100,
        "job",
        "recorded by other tools, which do not say at what cost, nor what they lost",
    ]


def test_the_model_is_shown_in_figures_the_largest_parameters_in_their_order():
    layers = tuple(LayerFigures(f"layer{i}", 10 * (i % 5 + 1), 0.5, None, 2e-5) for i in range(8))
    inputs = (TensorFigures("Images", "batch[0]", "float32", (8, 3), 0.1, 1.0, -2.0, 3.0, 0.0, 0.5),)
    model = ModelFigures(layers, inputs=inputs, advice=("fine as it is",))
    report = Report(run=Run("job"), verdict="healthy", model=model)

    assert section(render(report), "Model", "────") == """\
Model: the 6 largest of 8 parameters ───────────────────────────────────────────────────────────────
parameter  elements  weights  gradient  update / weight
layer1           20    0.500         –        2.0e-03 %
layer2           30    0.500         –        2.0e-03 %
layer3           40    0.500         –        2.0e-03 %
layer4           50    0.500         –        2.0e-03 %
layer6           20    0.500         –        2.0e-03 %
layer7           30    0.500         –        2.0e-03 %

batch            type and shape   mean   std  least  most  zeros  not finite
Images batch[0]  float32[8, 3]   0.100  1.00  -2.00  3.00    0 %        50 %
fine as it is
"""
