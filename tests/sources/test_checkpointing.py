import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(checkpoint(self.block, x, use_reentrant=True))


class Closed(Net):
    def forward(self, x):
        def run(x):
            return self.block(x)

        return self.head(checkpoint(run, x, use_reentrant=True))


def fit(model, needs=False):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        model(torch.randn(2, 4).requires_grad_(needs)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def cut(seen):
    return [(r.model, r.name, r.parameters) for r in seen.of("odd_part") if r.why == 1]


def test_a_block_whose_input_needs_no_gradient_is_named_once(watched):
    seen = watched(lambda: fit(Net()))

    assert cut(seen) == [("Net", "block", 2)]
    (part,) = [r for r in seen.of("odd_part") if r.why == 1]
    assert part.place.endswith("Net.forward")


def test_a_block_is_found_behind_a_function(watched):
    assert cut(watched(lambda: fit(Closed()))) == [("Closed", "block", 2)]


def test_nothing_is_written_where_the_input_needs_one_or_autograd_is_off(watched):
    def without():
        with torch.no_grad():
            Net()(torch.randn(2, 4))
        fit(Net(), needs=True)

    assert cut(watched(without)) == []


def test_a_frozen_block_has_nothing_to_lose(watched):
    def frozen():
        model = Net()
        model.block.requires_grad_(False)
        fit(model)

    assert cut(watched(frozen)) == []


def test_a_class_of_its_own_still_runs_its_own_forward(watched):
    class Own(torch.utils.checkpoint.CheckpointFunction):
        @staticmethod
        def forward(ctx, function, preserve, *args):
            return args[0] * 3

        @staticmethod
        def backward(ctx, *grads):
            return None, None, grads[0] * 3

    results = []
    watched(lambda: results.append(Own.apply(None, True, torch.ones(1, requires_grad=True)).item()))

    assert results == [3.0]
