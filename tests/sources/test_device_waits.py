import pytest
import torch

from rankscope.base import guard
from rankscope.capture.sources.device_waits import DeviceWaits, timed


class _Agent:
    """What `timed` asks of an agent, with the records in a list."""

    def __init__(self, thread):
        self.ended, self.ring, self.thread, self.step, self.timing = False, object(), thread, 7, False
        self.records = []

    def name(self, text):
        return len(text)

    def site(self):
        return 3

    def put(self, begin, duration, *rest):
        assert duration >= 0
        self.records.append(rest)


@pytest.fixture
def agent():
    import threading

    return _Agent(threading.get_ident())


def test_a_read_of_a_device_value_is_recorded_with_its_place(agent):
    read = timed(torch.Tensor.item, agent, lambda *_: True, lambda: False)

    assert read(torch.tensor(4.5)) == 4.5
    assert agent.records == [(47, len("item"), 7, 3, 0, 0)]


def test_a_read_of_a_host_value_is_not_recorded(agent):
    read = timed(torch.Tensor.item, agent, lambda tensor: tensor.is_cuda, lambda: False)

    assert read(torch.tensor(4.5)) == 4.5
    assert agent.records == []


def test_an_error_of_the_read_reaches_the_user(agent):
    read = timed(torch.Tensor.item, agent, lambda *_: True, lambda: False)

    with pytest.raises(RuntimeError, match="cannot be converted"):
        read(torch.ones(2))
    assert len(agent.records) == 1


def test_a_torch_built_without_cuda_is_left_as_it_is(agent, monkeypatch):
    monkeypatch.setattr(guard, "RERAISE", True)
    monkeypatch.setattr(torch.version, "cuda", None)
    before = {name: getattr(torch.Tensor, name) for name in ("item", "cpu")}

    DeviceWaits().install(agent)

    assert {name: getattr(torch.Tensor, name) for name in ("item", "cpu")} == before


@pytest.mark.gpu
def test_on_a_gpu_item_is_recorded_and_remove_restores_it(agent):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    before = torch.Tensor.item
    source = DeviceWaits()
    source.install(agent)
    try:
        assert torch.ones(1, device="cuda").item() == 1.0
    finally:
        source.remove()

    assert len(agent.records) == 1
    assert torch.Tensor.item is before
