import time
from itertools import pairwise

from rankscope.capture.sources import stacks


def busy_function():
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        sum(range(1000))


def test_samples_name_function_and_line(watched):
    seen = watched(busy_function, sample_hz=50.0)

    samples = seen.of("stack_sample")
    assert len(samples) > 5
    functions = [frame.rpartition(":")[2] for s in samples for frame in seen.stacks[s.stack][:1]]
    assert functions.count("busy_function") > len(samples) / 2
    assert all(a.cpu_ns < b.cpu_ns for a, b in pairwise(samples))


def test_fewer_samples_are_taken_later(watched, monkeypatch):
    def count(level):
        return len(watched(busy_function, sample_hz=40.0, level=level).of("stack_sample"))

    monkeypatch.setattr(stacks, "LATER", 40)  # to 1 Hz, were it not for the governor's least of 5
    many = count("standard")
    monkeypatch.setattr(stacks, "FIRST_NS", 0)
    few = count("standard")

    assert 1 <= few <= 3  # 0.5 s at 5 Hz
    assert many > 3 * few
    assert count("deep") > 3 * few  # the user's wish for detail holds


def test_no_thread_without_a_rate(watched):
    assert watched(busy_function, sample_hz=0.0).of("stack_sample") == []
