import pytest

from rankscope.base.errors import UserError
from rankscope.base.finding import Cost, Evidence, Finding


def finding(**fields):
    return Finding(
        **{
            "cause": "dead-rank",
            "severity": "critical",
            "confidence": 1.0,
            "title": "rank 1 died",
            "ranks": (1,),
            "all_ranks": False,
            "phase": None,
            "component": None,
            "location": None,
            "first_step": None,
            "last_step": None,
            "cost": Cost(None, None, None),
            "evidence": (Evidence("exit code", 137, ""),),
        }
        | fields
    )


def test_the_kind_follows_from_the_cause():
    assert finding().kind == "failure"


def test_a_finding_without_evidence_cannot_be_made():
    with pytest.raises(ValueError, match="finding dead-rank has no evidence"):
        finding(evidence=())


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"severity": "fatal"}, ValueError, "severity 'fatal' is none of info, warning, critical"),
        ({"confidence": 1.01}, ValueError, "confidence 1.01 is not between 0 and 1"),
        ({"confidence": float("nan")}, ValueError, "confidence nan is not between 0 and 1"),
        ({"cause": "dead-ranks"}, UserError, "there is no cause 'dead-ranks'; did you mean dead-rank"),
        ({"kind": "memory"}, ValueError, "dead-rank is of kind failure, not memory"),
        ({"cause": "my-plugin", "kind": "weather"}, ValueError, "kind 'weather' of my-plugin is none of performance"),
    ],
)
def test_what_the_contract_does_not_know_is_refused(fields, error, message):
    with pytest.raises(error, match=message):
        finding(**fields)


def test_a_cause_of_a_plug_in_says_its_kind():
    assert finding(cause="my-plugin", kind="data").kind == "data"


def test_evidence_that_is_no_finite_number_has_no_value():
    assert Evidence("loss", float("nan"), "") == Evidence("loss", None, "")


def test_a_cost_is_a_number_or_not_known():
    with pytest.raises(ValueError, match=r"cost\.share is inf; write None for what is not known"):
        Cost(1.0, float("inf"), None)


@pytest.mark.parametrize("share", [-0.01, 1.01, 2.4e9])
def test_a_share_is_between_0_and_1(share):
    with pytest.raises(ValueError, match=r"cost\.share is .*; a share is between 0 and 1"):
        Cost(1.0, share, None)
