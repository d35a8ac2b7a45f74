"""Indices beyond their tables."""

import pytest

from rankscope.analysis.detectors.index_out_of_range import IndexOutOfRange
from rankscope.analysis.engine import examine
from rankscope.records.batch_contents import IndexFailure
from rankscope.records.host import CaughtException
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.silent_contents import EMBED_SITE, FAULTS, LOSS_SITE, raising, sampled, training
from rankscope.testing.stops import HEALTHY_STOPS, STOPS


def titles(facts):
    return [(f.severity, f.ranks, f.title) for f in IndexOutOfRange().examine(facts)]


def test_names_rank_step_table_and_index():
    (finding,) = IndexOutOfRange().examine(FAULTS["index-out-of-range"]())

    assert named(finding) == Named(
        "index-out-of-range", "critical", (1,), False, "forward", "Net.embed.weight", EMBED_SITE, None
    )
    assert (finding.first_step, finding.title) == (
        40, "rank 1: index 512 is beyond Net.embed.weight of 512 rows, in step 40 in Net.forward (model.py:12)"
    )  # fmt: skip
    assert evidence_of([finding]) == {
        "the first index out of range": 512.0,
        "rows of the table": 512.0,
        "indices out of range in that call": 1.0,
        "place of the first one in its batch": 3.0,
        "number of that batch, from 0, in its pass over the loader": 0.0,
    }


def test_explains_the_exception_and_stands_before_it():
    first, second = examine(FAULTS["index-out-of-range"]()).findings

    assert (first.cause, second.cause, first.explains) == ("index-out-of-range", "rank-exception", (second.id,))


def test_names_a_label_beyond_the_classes():
    facts = raising(
        "IndexError: Target 10 is out of bounds.", LOSS_SITE, IndexFailure, name=LOSS_SITE, function="cross_entropy",
        value=10, size=10, wrong=2, sample=7,
    )()  # fmt: skip

    assert titles(facts) == [
        ("critical", (1,),
         "rank 1: label 10 is beyond the 10 classes of cross_entropy, in step 40 in main (train.py:38)")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("exception", "words"),
    [
        ("IndexError: index 9 is out of bounds for dimension 0 with size 9", "index 9 is beyond a dimension of 9"),
        ("IndexError: Target -1 is out of bounds.", "label -1 is beyond the classes of the loss"),
        ("RuntimeError: Class values must be smaller than num_classes.",
         "Class values must be smaller than num_classes."),
    ],
)  # fmt: skip
def test_reads_the_error_of_an_operation_that_is_not_watched(exception, words):
    facts = raising(exception, LOSS_SITE, CaughtException, name="")()

    assert titles(facts) == [("critical", (1,), f"rank 1: {words}, in step 40 in main (train.py:38)")]


def test_warns_of_errors_that_the_program_caught():
    def caught(writer, rank, step, at):
        if sampled(step) and rank == 0:
            writer.put(IndexFailure, at, at, step, name=EMBED_SITE, function="embedding", value=-1, size=50, wrong=1)

    assert titles(training(caught)()) == [
        ("warning", (0,), "rank 0: index -1 is beyond an embedding table of 50 rows, in step 0; the program went on in "
                          "Net.forward (model.py:12)")
    ]  # fmt: skip


def test_is_silent_about_a_list_of_the_program():
    facts = raising("IndexError: list index out of range", LOSS_SITE, CaughtException, name="")()

    assert titles(facts) == []


@pytest.mark.parametrize("stop", [*STOPS.values(), *HEALTHY_STOPS.values()])
def test_is_silent_about_other_stops(stop):
    assert titles(stop()) == []
