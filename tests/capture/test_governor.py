"""The governor lowers detail while observation costs more than its budget, one notch a window, never back."""

from types import SimpleNamespace

from rankscope.capture.config import Config, sample_rate
from rankscope.capture.governor import WINDOW, Governor


def agent(level="standard", sample_hz=20.0):
    config = Config(level=level, budget=0.01, sample_hz=sample_hz)
    made = SimpleNamespace(
        config=config, sources=[], sample_hz=sample_rate(config), slowness=1.0, deep=True, sites=True, described=0
    )
    made.describe = lambda: setattr(made, "described", made.described + 1)
    return made


def test_is_silent_within_the_budget():
    observed = agent()
    governor = Governor(observed)
    for _ in range(10 * WINDOW):
        governor.account(10_000_000, 50_000)

    assert (governor.notch, governor.state(), observed.described) == (0, "standard", 0)


def test_lowers_one_notch_a_window():
    observed = agent()
    governor = Governor(observed)
    states = []
    for _ in range(4):
        for _ in range(WINDOW):
            governor.account(10_000_000, 200_000)
        states.append((governor.notch, observed.deep, observed.sites, observed.sample_hz))

    assert states == [(1, False, True, 20.0), (2, False, False, 10.0), (3, False, False, 5.0), (3, False, False, 5.0)]
    assert observed.described == 3
    assert governor.state().startswith("standard, lowered to stay in the budget: no step is recorded module by module")


def test_a_few_disturbed_steps_lower_nothing():
    governor = Governor(agent())
    for i in range(4 * WINDOW):
        governor.account(10_000_000, 5_000_000 if i % 4 == 0 else 50_000)

    assert governor.notch == 0


def test_the_sampling_thread_counts():
    observed = agent()
    source = SimpleNamespace(thread_cpu_ns=0)
    observed.sources = [source]
    governor = Governor(observed)
    for _ in range(WINDOW):
        source.thread_cpu_ns += 150_000
        governor.account(10_000_000, 0)

    assert governor.notch == 1


def test_the_user_s_wish_for_depth_is_not_overruled():
    observed = agent("deep")
    governor = Governor(observed)
    for _ in range(3 * WINDOW):
        governor.account(10_000_000, 5_000_000)

    assert (governor.notch, observed.deep, observed.sample_hz) == (0, True, 40.0)


def test_never_samples_more_often_than_asked():
    observed = agent(sample_hz=2.0)
    governor = Governor(observed)
    for _ in range(4 * WINDOW):
        governor.account(10_000_000, 500_000)

    assert observed.sample_hz == 1.0
