"""What observation costs, as a ratio within one run: never a time."""

import statistics
import time

import pytest
import torch

from rankscope.base.clock import now_ns
from rankscope.capture import observer
from rankscope.capture.config import Config
from rankscope.capture.ring import Ring


def cheapest(call, rounds=9):
    best = float("inf")
    for _ in range(rounds):
        begin = time.thread_time_ns()
        call()
        best = min(best, time.thread_time_ns() - begin)
    return best


def test_a_record_costs_less_than_ten_dictionary_entries(tmp_path):
    put = Ring(tmp_path / "1.ring").lane()

    def records():
        for _ in range(2000):
            put(1, 2, 3, 4, 5, 6, 7, 8)

    def entries():
        for i in range(2000):
            {"a": i, "b": i, "c": i, "d": i, "e": i, "f": i, "g": i, "h": i, "i": i, "j": i}  # noqa: B018

    assert cheapest(records) < 4 * cheapest(entries)


def program(width=256, batch=64):
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(4)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(batch, width)

    def step():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return step


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_an_observed_step_costs_little_more_than_a_bare_one(tmp_path, one_thread):
    step = program()

    def many():
        for _ in range(20):
            step()

    many()
    ratios = []
    for _ in range(7):
        bare = cheapest(many, 3)
        agent = observer.start(Config(ring_folders=(str(tmp_path),), sample_hz=0), now_ns())
        agent.open()
        agent.step = 100
        for call in agent.on_step:
            call()
        for _ in range(3):
            many()  # the first samples of tensors, which tell how rarely the next ones may come
        observed = cheapest(many, 3)
        observer.stop()
        ratios.append(observed / bare)

    # Three records and their hooks on a step of a few milliseconds; 3 % is the promise on a quiet machine.
    assert statistics.median(ratios) < 1.10
