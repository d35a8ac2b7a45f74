import torch


def train_one_step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()


def test_repeated_initialisations_are_told_from_first_ones(watched):
    def make():
        model = torch.nn.Linear(4, 4)
        for _ in range(3):
            torch.nn.init.xavier_uniform_(model.weight)
        train_one_step(model)
        torch.nn.init.zeros_(model.bias)

    calls = {c.name: c for c in watched(make).of("call")}

    once = calls["torch.nn.init.kaiming_uniform_"]
    thrice = calls["torch.nn.init.xavier_uniform_"]
    assert (once.count, once.repeated_ns) == (1, 0)
    # The weight had been initialised by kaiming_uniform_ before.
    assert (thrice.count, thrice.repeated_ns) == (3, thrice.duration_ns)
    function = "test_repeated_initialisations_are_told_from_first_ones.<locals>.make"
    assert thrice.site.endswith(f"/test_initialisers.py:14:{function}")
    # After the first step nothing is counted any more.
    assert "torch.nn.init.zeros_" not in calls
