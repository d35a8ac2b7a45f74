"""The governor lowers detail while observation costs more than its budget, one thing a window, never back."""

from types import SimpleNamespace

from rankscope.capture.config import Config, sample_rate
from rankscope.capture.governor import WINDOW, Governor


def agent(level="standard", sample_hz=20.0, modules=""):
    config = Config(level=level, budget=0.01, sample_hz=sample_hz, modules=modules)
    made = SimpleNamespace(
        config=config, sources=[], sample_hz=sample_rate(config), sites=True, described=0, wake=1 << 62
    )
    made.describe = lambda: setattr(made, "described", made.described + 1)
    return made


def go_on(governor, own_ns, step_ns=10_000_000):
    """One timed step; 15 others come before the next one."""
    go_on.now += 16 * step_ns
    governor.account(go_on.now, step_ns, own_ns)


go_on.now = 0


def test_is_silent_within_the_budget():
    observed = agent()
    governor = Governor(observed)
    for _ in range(10 * WINDOW):
        go_on(governor, 50_000)

    assert (governor.state(), observed.described) == ("standard", 0)


def test_what_costs_little_stays_whatever_the_hooks_cost():
    observed = agent()
    governor = Governor(observed)
    for _ in range(10 * WINDOW):
        go_on(governor, 190_000)

    assert (governor.state(), observed.described) == ("standard", 0)


def test_call_sites_go_where_collectives_cost_several_times_the_budget():
    observed = agent()
    governor = Governor(observed)
    for _ in range(10 * WINDOW):
        go_on(governor, 500_000)

    assert (observed.sites, observed.sample_hz, observed.described) == (False, 20.0, 1)
    assert governor.state() == (
        "standard, lowered to stay in the budget: collectives are recorded without call-site and shapes"
    )


def test_modules_on_each_step_go_first():
    observed = agent(modules="*")
    governor = Governor(observed)
    for _ in range(WINDOW):
        go_on(governor, 300_000)

    assert (governor.modules, observed.sites, observed.wake) == (False, True, 0)
    assert governor.state().endswith("no modules are recorded on each step")


def test_a_few_disturbed_steps_lower_nothing():
    observed = agent()
    governor = Governor(observed)
    for i in range(4 * WINDOW):
        go_on(governor, 5_000_000 if i % 4 == 0 else 50_000)

    assert observed.described == 0


def test_fewer_stacks_are_sampled_where_they_are_dear():
    observed = agent()
    source = SimpleNamespace(thread_cpu_ns=0)
    observed.sources = [source]
    governor = Governor(observed)
    rates = []
    for _ in range(4):
        for _ in range(WINDOW):
            source.thread_cpu_ns += 16 * 150_000
            go_on(governor, 0)
        rates.append(observed.sample_hz)

    assert rates == [10.0, 5.0, 5.0, 5.0]
    assert governor.state() == "standard, lowered to stay in the budget: 5 stacks a second are sampled"


def test_the_user_s_wish_for_depth_is_not_overruled():
    observed = agent("deep")
    governor = Governor(observed)
    for _ in range(3 * WINDOW):
        go_on(governor, 5_000_000)

    assert (observed.sites, observed.sample_hz) == (True, 40.0)


def test_never_samples_more_often_than_asked():
    observed = agent(sample_hz=2.0)
    source = SimpleNamespace(thread_cpu_ns=0)
    observed.sources = [source]
    governor = Governor(observed)
    for _ in range(4 * WINDOW):
        source.thread_cpu_ns += 16 * 150_000
        go_on(governor, 500_000)

    assert observed.sample_hz == 2.0


def test_what_the_sampler_took_before_does_not_count():
    observed = agent()
    observed.sources = [SimpleNamespace(thread_cpu_ns=500_000_000)]
    governor = Governor(observed)
    for _ in range(10 * WINDOW):
        go_on(governor, 190_000)

    assert (observed.sample_hz, observed.described) == (20.0, 0)
