"""Clipping, loss scaling, wrapping: what is done to gradients between backward and optimizer."""

import math

import pytest
import torch


def _model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


def test_a_clipping_is_written_with_limit_norm_and_call_site(watched):
    found = []

    def train():
        net = _model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(6):
            optimizer.zero_grad()
            net(torch.ones(3, 4)).square().mean().backward()
            found.append(float(torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)))
            optimizer.step()

    clips = watched(train).of("gradient_clip")

    assert [(c.name, c.limit, c.given, c.scaled) for c in clips] == [
        *[("clip_grad_norm_", 0.5, 4, 0)] * 5, ("clip_grad_norm_", 0.5, 0, 0)
    ]  # fmt: skip
    assert [c.norm for c in clips] == [torch.tensor(n).item() for n in found]


def test_gradients_that_no_clipping_covers_are_named(watched):
    def train():
        net = _model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net(torch.ones(3, 4)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(net[2].parameters(), 0.5)
        optimizer.step()

    (found,) = watched(train).of("gradient_set")

    assert (found.name, found.what, found.count, found.of) == ("0.weight 0.bias", 0, 2, 4)
    assert found.norm > 0 and found.rest <= 0.5 + 1e-6


def test_a_clipping_knows_whether_the_loss_scale_is_still_in_the_gradients(watched):
    def train():
        net = _model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        for step in range(4):
            optimizer.zero_grad()
            scaler.scale(net(torch.ones(3, 4)).square().mean()).backward()
            if step % 2:
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()

    seen = watched(train)

    assert [(c.scaled, c.scale) for c in seen.of("gradient_clip")] == [(1, 256.0), (0, 1.0)] * 2
    assert [(s.name, s.scale, s.skipped, s.unscaled) for s in seen.of("scaler_step")] == [
        ("SGD", 256.0, 0, 0), ("SGD", 256.0, 0, 1)
    ] * 2  # fmt: skip
    assert {f.factor for f in seen.of("loss_factor")} == {256.0}


def test_a_skipped_step_names_the_layer_whose_gradients_are_not_finite(watched):
    def train():
        net = _model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        for _ in range(3):
            optimizer.zero_grad()
            loss = net(torch.ones(3, 4)).square().mean()
            net[1].register_full_backward_hook(lambda module, grads, out: (grads[0] * math.inf,))
            scaler.scale(loss).backward()
            net[0].weight.grad.fill_(math.inf)
            scaler.step(optimizer)
            scaler.update()

    seen = watched(train)

    assert [(s.scale, s.skipped) for s in seen.of("scaler_step")] == [(256.0, 1), (128.0, 1), (64.0, 1)]
    assert [(s.name.split()[-1], s.what, s.last) for s in seen.of("gradient_set")][:1] == [("0.weight", 1, 0)]


def test_backwards_without_optimizer_steps_are_looked_into_now_and_then(watched):
    def train():
        net = _model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net[2].weight.register_hook(lambda grad: grad * math.nan)
        for attempt in range(40):
            optimizer.zero_grad()
            (net(torch.ones(3, 4)).square().mean() * 2.0**attempt).backward()

    seen = watched(train)

    assert [(s.micro_batch + 1, s.name, s.last) for s in seen.of("gradient_set")] == [
        (4, "2.weight", 0), (8, "2.weight", 0), (16, "2.weight", 0), (32, "2.weight", 0)
    ]  # fmt: skip


def test_accumulation_is_not_looked_into_again_and_again(watched):
    def train():
        net = _model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            for _ in range(8):
                (net(torch.ones(3, 4)).square().mean() / 8).backward()
            net[2].weight.grad.fill_(math.nan)
            optimizer.step()

    seen = watched(train)

    assert seen.of("gradient_set") == []
    assert {f.factor for f in seen.of("loss_factor")} == {0.125}


def test_clipping_gets_a_generator_and_leaves_the_same_gradients(watched):
    def gradients(results):
        net = _model()
        net(torch.ones(3, 4)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_((p for p in net.parameters()), max_norm=0.1)
        torch.nn.utils.clip_grad_value_(net[0].weight, 0.001)
        results += [p.grad for p in net.parameters()]

    bare, observed_ones = [], []
    gradients(bare)
    watched(lambda: gradients(observed_ones))

    assert all(torch.equal(a, b) for a, b in zip(bare, observed_ones, strict=True))


def test_everything_is_put_back(watched):
    before = (
        torch.nn.utils.clip_grad_norm_, torch.amp.GradScaler.step,
        torch.nn.parallel.DistributedDataParallel._ddp_init_helper,
    )  # fmt: skip
    watched(lambda: None)

    assert before == (
        torch.nn.utils.clip_grad_norm_, torch.amp.GradScaler.step,
        torch.nn.parallel.DistributedDataParallel._ddp_init_helper,
    )  # fmt: skip


@pytest.fixture
def group():
    """A process group of this process alone."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_a_wrapper_says_who_belongs_to_it_and_what_goes_past_it(watched, group):
    def train():
        net = _model()
        wrapper = torch.nn.parallel.DistributedDataParallel(net, find_unused_parameters=True)
        wrapper.broadcast_buffers = False
        net[2] = torch.nn.Linear(8, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(2):
            wrapper(torch.ones(3, 4)).square().mean().backward()
            wrapper.module(torch.ones(3, 4))
            optimizer.step()

    found = watched(train).of("wrapping")

    counts = [(w.name, w.parameters, w.unknown, w.through, w.past) for w in found]
    assert counts == [("Sequential", 4, 2, 1, 1)] * 2
    assert [(w.broadcast_buffers, w.synchronises) for w in found] == [(0, 1)] * 2


def test_of_a_wrapper_that_is_never_called_the_parts_are_known(watched, group):
    def train():
        net = _model()
        wrapper = torch.nn.parallel.DistributedDataParallel(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        wrapper.module[2](wrapper.module[0](torch.ones(3, 4))).square().mean().backward()
        optimizer.step()

    found = watched(train).of("wrapping")

    assert [(w.name, w.parameters, w.through, w.past) for w in found] == [("Linear", 4, 0, 2), ("Linear#1", 4, 0, 2)]


def test_a_sum_over_ranks_in_both_passes_is_found_in_the_graph_of_the_loss(watched, group):
    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x = x.clone()
            torch.distributed.all_reduce(x)
            return x

        @staticmethod
        def backward(ctx, grad):
            grad = grad.clone()
            torch.distributed.all_reduce(grad)
            return grad

    def train():
        net = _model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net[2](Sum.apply(net[0](torch.ones(3, 4)))).square().mean().backward()
        optimizer.step()
        net(torch.ones(3, 4)).square().mean().backward()
        optimizer.step()

    seen = watched(train)

    assert [(s.what, s.count) for s in seen.of("gradient_set")] == [(2, 2)]
    assert [c.name for c in seen.of("call") if "backward" in c.name] == ["Sum.backward"]
