"""Which steps are recorded module by module, and when the agent has to ask."""

from itertools import pairwise

from rankscope.capture.deep import _next_power_of_four, _power_of_four


def test_each_power_of_four_is_asked_for_and_nothing_else():
    deep = [step for step in range(1, 5000) if _power_of_four(step)]

    assert deep == [1, 4, 16, 64, 256, 1024, 4096]
    for before, after in pairwise(deep):
        assert {_next_power_of_four(step) for step in range(before, after)} == {after}
