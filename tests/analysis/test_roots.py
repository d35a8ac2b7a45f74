"""Which finding is the root."""

import pytest

from rankscope.analysis.roots import arrange
from rankscope.base.finding import Cost, Evidence, Finding


def finding(cause, share, *, ranks=(1,), severity="warning", everywhere=False, confidence=1.0):
    return Finding(
        cause, severity, confidence, cause, ranks, everywhere, None, None, None, 0, 9, Cost(1.0, share, share),
        (Evidence("measured", 1.0, "x"),),
    )  # fmt: skip


def shown(findings):
    return [(f.id, f.cause, f.explains) for f in arrange(findings)]


def test_the_root_comes_first_and_what_it_explains_after_it():
    found = shown([finding("slow-device", 0.3), finding("cpu-throttling", 0.28), finding("gc-pause", 0.1)])

    assert found == [
        ("f1", "cpu-throttling", ("f2", "f3")),
        ("f2", "slow-device", ()),
        ("f3", "gc-pause", ()),
    ]


def test_what_costs_most_comes_first_where_nothing_explains_it():
    found = shown([finding("checkpoint-stall", 0.1), finding("evaluation-stall", 0.3), finding("gc-pause", 0.2)])

    assert [cause for _, cause, _ in found] == ["evaluation-stall", "gc-pause", "checkpoint-stall"]


def test_cost_counts_with_confidence_and_after_severity():
    found = shown(
        [
            finding("gc-pause", 0.9, severity="info"),
            finding("checkpoint-stall", 0.3, confidence=0.4),
            finding("evaluation-stall", 0.2),
        ]
    )

    assert [cause for _, cause, _ in found] == ["evaluation-stall", "checkpoint-stall", "gc-pause"]


def test_other_ranks_are_not_explained():
    found = shown([finding("cpu-throttling", 0.3, ranks=(0,)), finding("slow-device", 0.2, ranks=(1,))])

    assert found == [("f1", "cpu-throttling", ()), ("f2", "slow-device", ())]


def test_a_consequence_cannot_cost_much_more_than_its_cause():
    found = shown([finding("gc-pause", 0.1), finding("slow-code", 0.4)])

    assert found == [("f1", "slow-code", ()), ("f2", "gc-pause", ())]


def test_information_explains_no_warning():
    found = shown([finding("cpu-throttling", 0.3, severity="info"), finding("slow-device", 0.2)])

    assert found == [("f1", "slow-device", ()), ("f2", "cpu-throttling", ())]


def test_explanations_chain():
    found = shown(
        [finding("communication-bound", 0.2), finding("slow-data-loading", 0.3), finding("worker-affinity", 0.3)]
    )

    assert found == [
        ("f1", "worker-affinity", ("f2",)),
        ("f2", "slow-data-loading", ("f3",)),
        ("f3", "communication-bound", ()),
    ]


def test_causes_that_explain_each_other_are_all_kept():
    found = shown([finding("uneven-work", 0.3), finding("recompilation", 0.3), finding("slow-start", 0.3)])

    assert sorted(cause for _, cause, _ in found) == ["recompilation", "slow-start", "uneven-work"]
    assert len({id for id, _, _ in found}) == 3


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_in_which_detectors_ran_does_not_matter(order):
    found = [finding("slow-device", 0.3), finding("cpu-throttling", 0.28), finding("gc-pause", 0.1)]

    assert shown(found[::order])[0] == ("f1", "cpu-throttling", ("f2", "f3"))


def test_nothing_gives_nothing():
    assert arrange([]) == ()
