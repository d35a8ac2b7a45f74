import torch


def test_subnormal_weights_and_outputs_are_counted_on_deep_steps(watched):
    def train():
        model = torch.nn.Sequential(torch.nn.Linear(8, 8, bias=False), torch.nn.ReLU())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        with torch.no_grad():
            model[0].weight.fill_(1e-40)[0] = 1.0
        for _ in range(2):
            model(torch.ones(4, 8)).sum().backward()
            optimizer.step()

    seen = watched(train, level="deep").of("subnormals")

    # Seven of eight rows of the weight are subnormal, and so is what they give.
    assert {(s.name, s.activation, s.subnormal, s.sampled) for s in seen} == {
        ("0", 0, 56, 64), ("0", 1, 28, 32), ("1", 1, 28, 32),
    }  # fmt: skip
