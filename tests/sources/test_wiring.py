import copy

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.layers = [nn.Linear(4, 4), nn.Linear(4, 4)]
        self.teacher = [nn.Linear(4, 4)]

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        with torch.no_grad():
            y = self.teacher[0](x)
        return x + y


class Backbone(nn.Module):
    def __init__(self, stages):
        super().__init__()
        self.frozen_stages = stages
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)

    def train(self, mode=True):
        super().train(mode)
        self._freeze()
        return self

    def _freeze(self):
        if self.frozen_stages > 0:
            for parameter in self.layer.parameters():
                parameter.requires_grad = False


class ExponentialMovingAverage:
    def __init__(self, model, start_step=0):
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.start_step = start_step

    def update(self, model):
        for name, p in model.named_parameters():
            self.shadow[name].lerp_(p.detach(), 0.5)


def fit(model, steps=4, clear=True, after=lambda model: None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        if clear:
            optimizer.zero_grad()
        model(torch.randn(2, 4)).pow(2).mean().backward()
        optimizer.step()
        after(model)


def reused(seen):
    return [(r.step, r.watched, r.reused) for r in seen.of("gradient_reuse")]


def odd(seen, why):
    return [(r.model, r.name, r.parameters, r.held) for r in seen.of("odd_part") if r.why == why]


def test_gradients_that_are_not_cleared_are_used_again(watched):
    seen = watched(lambda: fit(nn.Linear(4, 4), clear=False))

    assert reused(seen) == [(1, 2, 2), (2, 2, 2), (3, 2, 2)]
    assert {r.site.rpartition(":")[2] for r in seen.of("gradient_reuse")} == {"fit"}


def test_cleared_gradients_are_not_however_they_are_cleared(watched):
    def by_hand():
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for i in range(4):
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
            for p in model.parameters():
                if i == 0:
                    p.grad = None
                elif i == 1:
                    p.grad.data.zero_()
                else:
                    p.grad *= 0

    assert [reused(watched(lambda: fit(nn.Linear(4, 4)))), reused(watched(by_hand))] == [
        [(1, 2, 0), (2, 2, 0), (3, 2, 0)]
    ] * 2


def test_gradients_that_the_program_replaces_are_not_used_again(watched):
    def replace():
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(4):
            grads = torch.autograd.grad(model(torch.randn(2, 4)).sum(), list(model.parameters()))
            for p, grad in zip(model.parameters(), grads, strict=True):
                p.grad = grad
            optimizer.step()

    assert {r for _, _, r in reused(watched(replace))} == {0}


def test_a_generators_gradients_in_the_discriminator_are_cleared_in_time(watched):
    def gan():
        one, two = nn.Linear(4, 4), nn.Linear(4, 1)
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in (two, one)]
        for _ in range(4):
            optimizers[0].zero_grad()
            (two(torch.randn(2, 4)) - two(one(torch.randn(2, 4)).detach())).mean().backward()
            optimizers[0].step()
            optimizers[1].zero_grad()
            two(one(torch.randn(2, 4))).mean().backward()
            optimizers[1].step()

    found = reused(watched(gan))

    assert len(found) == 6
    assert {r for _, _, r in found} == {0}


def test_an_optimizer_that_steps_every_few_steps_has_not_used_what_it_accumulates(watched):
    def accumulate():
        body, head = nn.Linear(4, 4), nn.Linear(4, 1)
        every, seldom = (torch.optim.SGD(m.parameters(), lr=0.01) for m in (head, body))
        for i in range(9):
            head(body(torch.randn(2, 4))).mean().backward()
            every.step()
            every.zero_grad()
            if i % 3 == 2:
                seldom.step()
                seldom.zero_grad()

    assert {r for _, _, r in reused(watched(accumulate))} == {0}


def test_a_closure_clears_inside_the_step(watched):
    def closures():
        model = nn.Linear(4, 4)
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
        x = torch.randn(8, 4)

        def closure():
            optimizer.zero_grad()
            loss = (model(x) - x).pow(2).mean()
            loss.backward()
            return loss

        for _ in range(4):
            optimizer.step(closure)

    assert {r for _, _, r in reused(watched(closures))} == {0}


def test_modules_in_a_plain_list_are_found_by_their_gradients(watched):
    assert odd(watched(lambda: fit(Net())), 0) == [("Net", "layers", 4, 0)]


def test_modules_of_a_plain_list_that_an_optimizer_holds_are_counted(watched):
    def held():
        model = Net()
        parameters = [*model.parameters(), *(p for layer in model.layers for p in layer.parameters())]
        optimizer = torch.optim.SGD(parameters, lr=0.01)
        for _ in range(2):
            model(torch.randn(2, 4)).mean().backward()
            optimizer.step()

    assert odd(watched(held), 0) == [("Net", "layers", 4, 4)]


def test_freezing_code_that_did_not_run_is_found_unless_its_setting_is_off(watched):
    def two():
        fit(Backbone(stages=2))
        fit(Backbone(stages=-1))

    seen = watched(two)

    assert odd(seen, 2) == [("Backbone", "Backbone", 2, 2)]
    (part,) = [r for r in seen.of("odd_part") if r.why == 2]
    assert part.place.endswith("Backbone.train")


def test_what_was_loaded_is_counted(watched):
    def load():
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[0].load_state_dict(copy.deepcopy(model[1].state_dict()))
        fit(model)

    assert [(r.name, r.elements) for r in watched(load).of("odd_part") if r.why == 3] == [("Sequential", 20)]


def prints(seen):
    found = {}
    for r in seen.of("average"):
        found.setdefault((r.name, r.class_name, r.waits), []).append(r.fingerprint)
    return {key: len(set(values)) for key, values in found.items()}


def test_averages_are_known_by_variable_or_class_and_followed(watched):
    def average():
        model = nn.Linear(4, 4)
        smooth = ExponentialMovingAverage(model, start_step=3)
        ema_model = copy.deepcopy(model)
        loss_ema = 0.0
        fit(model, steps=4, after=smooth.update)
        assert ema_model is not None and loss_ema == 0.0

    assert prints(watched(average)) == {
        ("smooth", "ExponentialMovingAverage", 3): 4,
        ("ema_model", "Linear", 0): 1,
    }


def test_variables_of_the_program_are_let_go_after_a_look(watched):
    import gc
    import weakref

    gone = []

    def train():
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(4):
            big = torch.randn(64, 4)
            gone.append(weakref.ref(big))
            model(big).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            del big
            gc.collect()
            gone[-1] = gone[-1]() is None

    watched(train)

    assert gone == [True] * 4
