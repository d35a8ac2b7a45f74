import time
from itertools import pairwise


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


def test_no_thread_without_a_rate(watched):
    assert watched(busy_function, sample_hz=0.0).of("stack_sample") == []
