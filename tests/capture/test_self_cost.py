from rankscope.capture.self_cost import COLDEST, HOOK_NS, whole_cost_ns


def test_from_warm_caches_a_cost_is_what_is_seen_and_what_is_known():
    assert whole_cost_ns(6 * HOOK_NS, 10_000, 6, 1.0) == 6 * HOOK_NS + 10_000


def test_what_is_hidden_is_slowed_as_much_as_what_is_seen():
    assert whole_cost_ns(6 * 8 * HOOK_NS, 10_000, 6, 1.0) == 48 * HOOK_NS + 80_000


def test_a_slow_machine_is_not_taken_for_a_cold_one():
    assert whole_cost_ns(6 * 3 * HOOK_NS, 30_000, 6, 3.0) == 18 * HOOK_NS + 30_000


def test_a_hook_that_was_interrupted_does_not_stand_for_all():
    assert whole_cost_ns(10_000_000, 10_000, 6, 1.0) == 10_000_000 + round(10_000 * COLDEST)


def test_a_step_without_hooks_costs_nothing():
    assert whole_cost_ns(0, 0, 0, 1.0) == 0
