"""A plain `python train.py` with the loops that users write."""

import pytest


@pytest.fixture(scope="module")
def run(observed, tmp_path_factory):
    run = observed.observe(tmp_path_factory.mktemp("single"), str(observed.PROGRAMS / "single.py"))
    assert run.code == 0, run.errors
    return run


@pytest.fixture(scope="module")
def seen(run):
    (seen,) = run.seen
    return seen


def line_of(observed, program, text):
    lines = (observed.PROGRAMS / program).read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if text in line)


def test_is_one_rank_of_a_world_of_one(run, seen):
    process = seen.process

    assert (process.role, process.rank, process.world_size) == ("rank", 0, 1)
    assert (process.sources_off, seen.lost, seen.goodbye) == ({}, 0, True)


def test_each_optimizer_step_ends_a_step(run, seen):
    steps = seen.of("step", between=run.section("plain"))
    waits = seen.of("batch_wait", between=run.section("plain"))

    assert [s.step for s in steps] == [0, 1, 2, 3]
    assert [s.micro_batches for s in steps] == [1, 1, 1, 1]
    assert [(w.ordinal, w.ended, w.workers, w.name) for w in waits] == [
        (0, 0, 0, "TensorDataset"),
        (1, 0, 0, "TensorDataset"),
        (2, 0, 0, "TensorDataset"),
        (3, 0, 0, "TensorDataset"),
        (4, 1, 0, "TensorDataset"),
    ]


def test_a_fetch_lies_in_its_wait_and_gives_it_its_cpu_time(run, seen):
    waits = seen.of("batch_wait", between=run.section("plain"))[:4]
    fetches = seen.of("fetch", between=run.section("plain"))

    assert [(f.samples, f.first_index, f.worker) for f in fetches] == [(3, 0, 0), (3, 3, 0), (3, 6, 0), (3, 9, 0)]
    assert all(w.time_ns <= f.time_ns for w, f in zip(waits, fetches, strict=True))


def test_a_backward_knows_its_line(observed, run, seen):
    backwards = seen.of("backward", between=run.section("plain"))

    line = line_of(observed, "single.py", "# plain backward")
    assert {b.site for b in backwards} == {f"{observed.PROGRAMS / 'single.py'}:{line}:<module>"}
    assert len(backwards) == 4


def test_accumulated_micro_batches_are_counted(run, seen):
    steps = seen.of("step", between=run.section("accumulation"))

    assert [s.micro_batches for s in steps] == [3, 3]
    assert len(seen.of("optimizer_step", between=run.section("accumulation"))) == 2


def test_evaluation_is_told_from_training(run, seen):
    forwards = seen.of("forward", between=run.section("evaluation"))

    assert [(f.training, f.grad, f.trained, f.elements) for f in forwards] == [
        (1, 1, 1, 8), (0, 0, 1, 12), (0, 0, 1, 12),
        (1, 1, 1, 8), (0, 0, 1, 12), (0, 0, 1, 12),
    ]  # fmt: skip


def test_activation_checkpointing_is_one_backward_a_step(run, seen):
    between = run.section("checkpointing")

    assert len(seen.of("backward", between=between)) == 2
    assert len(seen.of("optimizer_step", between=between)) == 2
    # The second forward of a checkpointed model runs inside backward.
    assert len(seen.of("forward", between=between)) == 4


def test_autocast_is_noted(run, seen):
    assert [f.autocast for f in seen.of("forward", between=run.section("autocast"))] == [1, 1]
    assert [f.autocast for f in seen.of("forward", between=run.section("plain"))] == [0, 0, 0, 0]


def test_a_closure_runs_inside_its_optimizer_step(run, seen):
    (calls,) = [s["closure_calls"] for s in run.said if "closure_calls" in s]
    steps = seen.of("optimizer_step", "LBFGS")
    backwards = seen.of("backward", between=run.section("lbfgs"))

    assert len(steps) == 25
    assert len(backwards) == calls
    for backward in backwards:
        assert any(s.time_ns <= backward.time_ns < s.time_ns + s.duration_ns for s in steps)


def test_two_optimizers_make_one_step(run, seen):
    between = run.section("gan")
    steps = seen.of("step", between=between)
    optimizers = seen.of("optimizer_step", "Adam", between)

    assert [o.optimizer for o in optimizers] == [3, 4] * 60
    # LBFGS closed the steps before; one of the two takes over and keeps the part.
    assert len(steps) in range(35, 61)
    assert {s.micro_batches for s in steps[1:]} == {2}


def test_two_models_of_one_class_have_two_names(run, seen):
    assert {f.model for f in seen.of("forward", between=run.section("gan"))} == {"Sequential#2", "Sequential#3"}


def test_modules_are_recorded_on_the_first_steps_and_doubling_ones(run, seen):
    steps = {m.step for m in seen.of("module")}

    # After step 50 the governor may have its say: these steps are far too short for the budget.
    assert {s for s in steps if s < 50} == {0, 1, 2, 3, 4, 16}
    assert {m.name for m in seen.of("module", between=run.section("plain"))} == {"0", "1", "2"}


def test_a_save_is_a_span(run, seen):
    (span,) = seen.of("span")

    assert (span.name, span.detail, span.site.split(":")[0].endswith("single.py")) == ("checkpoint", "torch.save", True)
