import pytest

from rankscope.base.errors import UserError
from rankscope.report.details import (
    MAX_COLUMNS,
    Details,
    Heat,
    Snippet,
    StepTimes,
    details_from_json,
    details_to_json,
    heat_of,
    step_times_of,
)


def test_json_gives_back_details_as_they_were(made_up):
    assert details_from_json(details_to_json(made_up.DETAILS), "details.json") == made_up.DETAILS


def test_json_gives_back_empty_details():
    assert details_from_json(details_to_json(Details()), "details.json") == Details()


def test_details_are_one_line_of_json():
    details = Details(sources={"a.py": (Snippet(3, ("x = 1",)),)})

    assert details_to_json(details) == (
        '{"schema":"rankscope.details/1","steps":[],"heat":null,'
        '"sources":{"a.py":[{"first_line":3,"lines":["x = 1"]}]},"step_ms":null,"markers":[]}\n'
    )


def test_a_report_is_no_details():
    with pytest.raises(UserError, match=r"x\.json: field schema is 'rankscope\.report/1', not 'rankscope\.details/1'"):
        details_from_json('{"schema": "rankscope.report/1"}', "x.json")


def test_a_short_run_keeps_every_step():
    heat = heat_of([0, 1], [5, 6, 7], [[1.0, 2.0, 3.0], [4.0, None, 6.0]], "time in data")

    assert heat == Heat((0, 1), (5, 6, 7), ((1.0, 2.0, 3.0), (4.0, None, 6.0)), "time in data")


def test_a_long_run_keeps_the_largest_value_of_each_column():
    values = [float(step % 7 == 0) for step in range(1000)]
    values[998] = 9.0

    heat = heat_of([0], range(1000), [values], "")

    assert len(heat.steps) <= MAX_COLUMNS
    assert heat.steps[:3] == (0, 3, 6)
    assert heat.values[0][:3] == (1.0, 0.0, 1.0)
    assert heat.values[0][-2:] == (9.0, 0.0)


def test_a_column_without_any_record_stays_empty():
    assert step_times_of(range(800), {3: [None] * 798 + [None, 2.5]}) == StepTimes(
        tuple(range(0, 800, 2)), {3: (None,) * 399 + (2.5,)}
    )
