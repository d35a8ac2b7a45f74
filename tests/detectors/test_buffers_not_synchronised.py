"""Running statistics that each replica keeps for itself."""

from dataclasses import replace

from rankscope.analysis.detectors.buffers_not_synchronised import BuffersNotSynchronised
from rankscope.records.collective import Collective
from rankscope.records.inventory import Buffer
from rankscope.testing import silent_sync as made
from rankscope.testing.checks import Named, named
from rankscope.testing.trainings import MS, fingerprint


def found_in(facts):
    return list(BuffersNotSynchronised().examine(facts))


def own_buffer(rank, step, buffer):
    return {"fingerprint": fingerprint(buffer.path, step, rank), "rms": 0.3 + 0.1 * rank}


def test_names_buffers_that_nothing_makes_equal():
    found = found_in(made.buffers_apart())

    assert [named(f) for f in found] == [
        Named("buffers-not-synchronised", "warning", (0, 1), True, "forward", "batch.running_mean", None, None)
    ]
    assert found[0].first_step == 0


def test_names_them_also_where_gradients_are_averaged_by_hand():
    assert [f.component for f in found_in(replace(made.MANUAL, buffer=own_buffer).facts())] == ["batch.running_mean"]


def test_is_silent_where_the_wrapper_copies_them():
    assert found_in(made.buffers_apart(broadcast=1)) == []


def test_is_silent_where_the_program_averages_them_now_and_then():
    def averages(w, rank, step, t):
        made.wrapping(broadcast_buffers=0)(w, rank, step, t)
        if step % 20 == 19:
            w.put(Collective, t + 18 * MS, t + 18 * MS, step, name="allreduce", group="group:default", elements=32)

    assert found_in(replace(made.WRAPPED, buffer=own_buffer, extra=averages).facts()) == []


def test_is_silent_about_buffers_that_never_change():
    def fixed(rank, step, buffer):
        return {"fingerprint": rank, "rms": 1.0}

    run = replace(made.WRAPPED, buffer=fixed, extra=made.wrapping(broadcast_buffers=0))

    assert found_in(run.facts()) == []


def test_a_buffer_of_unknown_purpose_is_a_remark():
    run = replace(
        made.WRAPPED, buffers=(Buffer("memory.queue", (64, 8), "float32", "Memory"),), buffer=own_buffer,
        extra=made.wrapping(broadcast_buffers=0),
    )  # fmt: skip

    assert [(f.component, f.severity) for f in found_in(run.facts())] == [("memory.queue", "info")]


def test_ranks_with_like_data_that_keep_their_own_are_a_remark():
    def near(rank, step, buffer):
        return {**own_buffer(rank, step, buffer), "rms": 0.3 + 0.003 * rank}

    run = replace(made.WRAPPED, buffer=near, extra=made.wrapping(broadcast_buffers=0))

    assert [f.severity for f in found_in(run.facts())] == ["info"]
