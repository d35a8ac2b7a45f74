"""What user code between the phases serves."""

from dataclasses import replace

import pytest

from rankscope.analysis.engine import examine
from rankscope.testing import places
from rankscope.testing.known_runs import BASE, known_run
from rankscope.testing.parts import Code, Evaluate, Save


def ms_of(facts, phase, position=0):
    """Own time of a rank in a phase over the whole window, in ms."""
    return facts.work_ns(position, phase) * len(facts.steps) / 1e6


def test_the_flush_of_a_function_that_saves_is_a_checkpoint_too():
    run = replace(BASE, parts=(Save(ms=100.0, flush_ms=300.0, every=20, offset=4, ranks=(0,)),)).build()

    assert ms_of(run.facts, "checkpoint") == pytest.approx(4 * 400, abs=1)


def test_the_metric_of_a_function_that_evaluates_is_evaluation_too():
    part = Evaluate(batches=10, forward_ms=8.0, data_ms=2.0, metric_ms=200.0, every=20, offset=4)

    assert ms_of(replace(BASE, parts=(part,)).build().facts, "evaluation") == pytest.approx(4 * 300, abs=1)


@pytest.mark.parametrize("function", ["log_metrics", "dump_metrics", "report", "write_histograms", "Tracker.track"])
def test_functions_that_log_by_their_name_are_logging(function):
    run = replace(BASE, parts=(Code(ms=100.0, every=4, place=f"{places.TRAIN}:72:{function}"),)).build()

    assert ms_of(run.facts, "logging") == pytest.approx(20 * 100, abs=1)


@pytest.mark.parametrize("function", ["catalogue", "update_ema", "dialogue_turn", "login", "cosine_schedule"])
def test_functions_that_only_sound_alike_are_not(function):
    run = replace(BASE, parts=(Code(ms=100.0, every=4, place=f"{places.TRAIN}:72:{function}"),)).build()

    assert ms_of(run.facts, "other") == pytest.approx(20 * 100 + 80 * 0.09, abs=1)


@pytest.mark.parametrize("function", ["validate_inputs", "test_gradients"])
def test_slow_checks_of_each_batch_are_reported_although_they_sound_like_evaluation(function):
    run = replace(BASE, parts=(Code(ms=60.0, place=f"{places.TRAIN}:72:{function}"),)).build()

    assert [f.cause for f in examine(run.facts).findings if f.severity != "info"] == ["slow-code"]


def script(folder, text):
    file = folder / "train.py"
    file.write_text(text)
    return {places.TRAIN: str(file)}


IN_THE_LOOP = """\
def rows_for(step):
    return step, step


def main():
    for step in range(100):
        x, y = rows_for(step)
        x = x.float()
        loss = model(x, y)
        loss.backward()


main()
"""


def test_a_batch_made_in_the_loop_is_data(tmp_path):
    part = Code(ms=20.0, at="before-forward", line=7, place=f"{places.TRAIN}:2:rows_for")
    run = replace(BASE, loader=None, parts=(part,), files=script(tmp_path, IN_THE_LOOP)).build()

    assert ms_of(run.facts, "data") == pytest.approx(80 * 20, rel=0.01)
    [found] = examine(run.facts).findings
    assert (found.cause, found.location.file, found.location.line, found.location.function) == (
        "slow-data-loading", str(tmp_path / "train.py"), 2, "rows_for",
    )  # fmt: skip


def test_code_before_forward_whose_result_goes_nowhere_is_not_data(tmp_path):
    text = IN_THE_LOOP.replace("x, y = rows_for(step)", "unused = rows_for(step)")
    part = Code(ms=20.0, at="before-forward", line=7, place=f"{places.TRAIN}:2:rows_for")
    run = replace(BASE, loader=None, parts=(part,), files=script(tmp_path, text)).build()

    assert [f.cause for f in examine(run.facts).findings] == ["slow-code"]


def test_the_training_loop_is_known_by_what_calls_backward():
    assert known_run("slow function on rank 1").facts.activities.loop == {
        ("/home/user/train.py", "<module>"),
        ("/home/user/train.py", "main"),
    }


def test_without_samples_the_records_alone_decide():
    run = replace(BASE, sample_hz=0.0, parts=(Save(ms=300.0, flush_ms=200.0, every=20, offset=4, ranks=(0,)),)).build()

    assert ms_of(run.facts, "checkpoint") == pytest.approx(4 * 300, abs=1)
    [found] = examine(run.facts).findings
    assert (found.cause, found.location.function) == ("checkpoint-stall", "save_checkpoint")


def test_a_function_that_flushes_a_file_logs_whatever_its_name(tmp_path):
    file = tmp_path / "events.py"
    file.write_text("class Events:\n    def add(self, x):\n        self.file.write(x)\n        os.fsync(self.file)\n")
    run = replace(BASE, parts=(Code(ms=100.0, every=4, place=f"{file}:4:EventFile.add"),)).build()

    assert ms_of(run.facts, "logging") == pytest.approx(20 * 100, abs=1)
