from rankscope.analysis.detectors.nan_from_data import NanFromData
from rankscope.testing.silent_values import EMPTY_BATCH, FAULTS
from rankscope.testing.trainings import Training


def found(facts):
    return list(NanFromData().examine(facts))


def test_names_rank_step_tensor_and_sample_of_the_broken_batch():
    (finding,) = found(FAULTS["nan-from-data"]())

    assert (finding.ranks, finding.first_step, finding.component, finding.severity) == (
        (1,), 20, "Photos: image", "critical",
    )  # fmt: skip
    assert finding.title == (
        "rank 1, step 20: a batch of Photos is not finite (image: 3 of 4096 values), and so is the loss"
    )
    assert {e.text: e.value for e in finding.evidence}["index of the first sample of the batch"] == 160


def test_a_batch_without_targets_that_is_lost_alone_is_a_warning():
    (finding,) = found(EMPTY_BATCH.facts())

    assert (finding.severity, finding.component, finding.first_step, finding.last_step) == (
        "warning", "Photos: no targets", 20, 20,
    )  # fmt: skip


def test_is_silent_where_an_operation_made_it():
    assert found(FAULTS["nan-from-operation"]()) == []


def test_is_silent_where_every_loss_is_finite():
    assert found(Training().facts()) == []
