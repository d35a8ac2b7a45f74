from collections import Counter

import pytest

from rankscope.base.causes import CAUSES, KINDS, Cause, cause
from rankscope.base.errors import UserError
from rankscope.report.pages import format_page


def test_the_catalogue_has_every_cause_of_the_contract():
    assert KINDS == ("performance", "memory", "failure", "numerics", "data", "inference", "environment")
    assert Counter(one.kind for one in CAUSES.values()) == {
        "performance": 27,
        "memory": 10,
        "failure": 15,
        "numerics": 34,
        "data": 14,
        "inference": 4,
        "environment": 1,
    }


def test_every_meaning_is_one_sentence_that_ends():
    assert [one.code for one in CAUSES.values() if not one.meaning[0].isupper() and one.meaning[0] != "/"] == []
    assert [one.code for one in CAUSES.values() if not one.meaning.endswith(".")] == []


def test_a_code_gives_its_cause():
    assert cause("queueing") == Cause(
        "queueing", "inference", "Requests wait for other requests before they are worked on."
    )


def test_an_unknown_code_is_answered_with_the_closest():
    with pytest.raises(UserError, match=r"there is no cause 'slow_data_loadin'; did you mean slow-data-loading"):
        cause("slow_data_loadin")


def test_a_code_like_no_other_is_answered_with_the_list():
    with pytest.raises(UserError, match=r"there is no cause 'qqq'; `rankscope causes` lists all of them\."):
        cause("qqq")


def test_a_page_is_code_kind_and_meaning():
    assert format_page(cause("queueing"), None) == (
        "queueing  (inference)\n\nRequests wait for other requests before they are worked on.\n"
    )


def test_a_page_ends_with_the_docstring_of_the_detector_as_it_is_written():
    page = format_page(Cause("x", "data", "It is so."), "First line.\n\n        * a point\n          of it\n    ")

    assert page == "x  (data)\n\nIt is so.\n\nFirst line.\n\n* a point\n  of it\n"


@pytest.mark.parametrize("code", CAUSES)
def test_no_line_of_a_page_is_wider_than_100(code):
    assert max(map(len, format_page(cause(code), None).splitlines())) <= 100
