import torch
from torch import nn
from torch.nn import functional


class Functional(nn.Module):
    def __init__(self, **how):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.how = how

    def forward(self, x):
        return functional.dropout(self.layer(x), 0.5)


class Honest(Functional):
    def forward(self, x):
        return functional.dropout(self.layer(x), 0.5, self.training) + torch.randn(4)


def program(model, mode, passes=2, same=False):
    def run():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(2):
            model.train()
            model(torch.randn(2, 4)).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        model.train(mode)
        evaluate(model, passes, torch.randn(2, 4) if same else None)

    return run


def evaluate(model, passes, x):
    with torch.no_grad():
        for _ in range(passes):
            model(torch.randn(2, 4) if x is None else x)


def looks(seen):
    return [
        (r.model, r.training, r.random, r.dropouts, r.batch_norms, r.dropout_code, r.repeated)
        for r in seen.of("evaluation_pass")
    ]


def test_layers_at_work_are_counted_in_training_mode(watched):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1), nn.BatchNorm1d(4), nn.Dropout(0.0))
    seen = watched(program(model, mode=True))

    assert looks(seen) == [("Sequential", 1, 1, 1, 1, 0, 0)] * 2
    assert {r.site.rpartition(":")[2] for r in seen.of("evaluation_pass")} == {"evaluate"}
    assert {r.step for r in seen.of("evaluation_pass")} == {2}


def test_nothing_is_at_work_in_evaluation_mode(watched):
    assert looks(watched(program(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1)), mode=False))) == [
        ("Sequential", 0, 0, 0, 0, 0, 0)
    ] * 2


def test_a_function_that_drops_in_each_mode_is_named_with_its_place(watched):
    seen = watched(program(Functional(), mode=False))

    assert looks(seen) == [("Functional", 0, 1, 0, 0, 1, 0)] * 2
    (name,) = {r.name for r in seen.of("evaluation_pass")}
    assert name.startswith("Functional|") and name.endswith("test_evaluations.py:12:Functional.forward")


def test_sampling_in_a_model_that_honours_its_mode_is_no_dropout(watched):
    assert looks(watched(program(Honest(), mode=False))) == [("Honest", 0, 1, 0, 0, 0, 0)] * 2


def test_passes_over_the_same_input_are_counted(watched):
    seen = watched(program(Functional(), mode=False, passes=10, same=True))

    assert [r.repeated for r in seen.of("evaluation_pass")] == list(range(8))


def test_the_random_generator_is_where_it_would_have_been(watched):
    drawn = []

    def run():
        torch.manual_seed(3)
        program(Functional(), mode=False)()
        drawn.append(torch.rand(1).item())

    watched(run)
    run()

    assert drawn[0] == drawn[1]


def test_recalibrating_batch_norm_is_left_out(watched):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

    def run():
        program(model, mode=True, passes=0)()
        torch.optim.swa_utils.update_bn([torch.randn(4, 4)] * 3, model)

    assert looks(watched(run)) == []
