"""Activation checkpointing that loses the gradient."""

from rankscope.analysis.detectors.checkpointing_cuts_gradient import CheckpointingCutsGradient
from rankscope.records.wiring import CUT_BY_CHECKPOINT
from rankscope.testing import silent_wiring as made
from rankscope.testing.checks import Named, named
from rankscope.testing.trainings import Training


def found(facts):
    return [(named(f), f.first_step) for f in CheckpointingCutsGradient().examine(facts)]


def training(path, gradient):
    put = made.odd(CUT_BY_CHECKPOINT, path, place=made.BLOCK)
    return Training(extra=put, weight=lambda rank, step, p: {"gradient": gradient}).facts()


def test_names_the_block_whose_parameters_get_no_gradient():
    assert found(training("layers.0", gradient=0)) == [
        (
            Named("checkpointing-cuts-gradient", "critical", (0, 1), True, "forward", "layers.0", made.BLOCK, None),
            0,
        )
    ]


def test_warns_where_the_block_is_no_part_of_a_model_that_we_know():
    assert [f.severity for f in CheckpointingCutsGradient().examine(training("Block", gradient=1))] == ["warning"]


def test_is_silent_where_the_block_gets_gradients_on_another_way():
    assert found(training("layers.0", gradient=1)) == []


def test_is_silent_without_such_calls():
    assert found(Training().facts()) == []
