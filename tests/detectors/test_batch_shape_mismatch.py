"""Inputs and labels of different sizes."""

import pytest

from rankscope.analysis.detectors.batch_shape_mismatch import BatchShapeMismatch
from rankscope.analysis.engine import examine
from rankscope.records.batch_contents import ONE_FOR_MANY, LossCall
from rankscope.records.host import CaughtException
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.silent_contents import (
    FAULTS,
    HEALTHY,
    LOSS_SITE,
    loader_batch,
    loss,
    put_tensor,
    raising,
    sampled,
    training,
)
from rankscope.testing.stops import HEALTHY_STOPS, STOPS
from rankscope.testing.trainings import Training


def found(facts):
    return [(f.severity, f.ranks, f.component, f.title) for f in BatchShapeMismatch().examine(facts)]


def test_names_the_loss_that_makes_pairs_of_all():
    (finding,) = BatchShapeMismatch().examine(FAULTS["batch-shape-mismatch"]())

    assert named(finding) == Named(
        "batch-shape-mismatch", "critical", (0, 1), True, "forward", "mse_loss", LOSS_SITE, None
    )
    assert (finding.first_step, finding.title) == (
        0, "mse_loss of [32, 1] against [32]: each prediction is compared with every target in main (train.py:38)"
    )  # fmt: skip
    assert evidence_of([finding]) == {
        "calls looked at that expand their input": 20.0,
        "elements of the target": 32.0,
        "differences that are averaged": 1024.0,
    }


def test_names_one_prediction_for_many_targets():
    facts = training(loss("l1_loss", shape="[1, 4] against [50, 4]", broadcast=ONE_FOR_MANY))()

    assert found(facts) == [
        ("warning", (0, 1), "l1_loss",
         "l1_loss of [1, 4] against [50, 4]: one prediction is compared with all targets in main (train.py:38)")
    ]  # fmt: skip


def test_a_loss_that_raised_explains_the_exception():
    facts = raising(
        "ValueError: Expected input batch_size (1) to match target batch_size (50).", LOSS_SITE, LossCall,
        name=LOSS_SITE, function="cross_entropy", shape="[1, 10] against [50]", grad=1, raised=1,
    )()  # fmt: skip
    first, second = examine(facts).findings

    assert (first.cause, second.cause, first.explains) == ("batch-shape-mismatch", "rank-exception", (second.id,))
    assert first.title == (
        "rank 1: prediction and target disagree in cross_entropy of [1, 10] against [50], in step 40 in main "
        "(train.py:38)"
    )
    assert first.ranks == (1,)


def test_reads_the_error_where_the_call_was_not_seen():
    text = "ValueError: Target size (torch.Size([32])) must be the same as input size (torch.Size([32, 1]))"
    facts = raising(text, LOSS_SITE, CaughtException, name="")()

    assert found(facts) == [
        ("critical", (1,), None,
         "rank 1: prediction and target disagree in a loss of [32] against [32, 1], in step 40 in main (train.py:38)")
    ]  # fmt: skip


def test_is_silent_about_a_loss_that_raised_for_another_reason():
    facts = raising(
        "RuntimeError: expected scalar type Long but found Float", LOSS_SITE, LossCall, name=LOSS_SITE,
        function="cross_entropy", shape="[50, 10] against [50]", grad=1, raised=1,
    )()  # fmt: skip

    assert found(facts) == []


def test_names_the_data_whose_batches_were_made_one():
    assert found(training(loader_batch(shape="float32[1, 6144]"))()) == [
        (
            "warning", (0, 1), "batch[0] of Images",
            "batches of Images: batch[0] has 1 sample where 32 were asked for and labelled",
        )
    ]  # fmt: skip


def test_names_ranks_that_pad_to_a_length_of_their_own():
    def padded(writer, rank, step, at):
        if sampled(step):
            length = 64 if rank == 2 else 128
            put_tensor(writer, rank, step, at, {"shape": f"int64[8, {length}]", "source": "Texts", "loader": 1})

    assert found(Training(ranks=3, extra=padded).facts()) == [
        ("warning", (2,), "Texts",
         "batch[0] of Texts has the sizes [64] on rank 2 and [128] on ranks 0 and 1, in every batch")
    ]  # fmt: skip


def test_is_silent_about_lengths_that_change_from_batch_to_batch():
    def padded(writer, rank, step, at):
        if sampled(step):
            length = 64 + (step * 7 + rank * 5) % 40
            put_tensor(writer, rank, step, at, {"shape": f"int64[8, {length}]", "source": "Texts", "loader": 1})

    assert found(training(padded)()) == []


@pytest.mark.parametrize("stop", [*STOPS.values(), *HEALTHY_STOPS.values(), *HEALTHY.values()])
def test_is_silent_about_other_stops_and_healthy_runs(stop):
    assert found(stop()) == []
