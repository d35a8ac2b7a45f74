import contextlib
import json
import time

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


@contextlib.contextmanager
def section(name):
    begin = time.monotonic_ns()
    yield
    print(json.dumps({"section": name, "begin": begin, "end": time.monotonic_ns()}), flush=True)


def net(width=4):
    return nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, 1))


def data(n=12):
    return TensorDataset(torch.randn(n, 4), torch.randn(n, 1))


torch.manual_seed(0)
model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with section("plain"):
    for x, y in DataLoader(data(), batch_size=3):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()  # plain backward
        optimizer.step()

with section("accumulation"):
    for i, (x, y) in enumerate(DataLoader(data(), batch_size=2)):
        nn.functional.mse_loss(model(x), y).backward()
        if i % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()

with section("evaluation"):
    for _ in range(2):
        model.train()
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            for x, _ in DataLoader(data(6), batch_size=3):
                model(x)

with section("checkpointing"):
    model.train()
    for _ in range(2):
        checkpoint(model, torch.randn(2, 4, requires_grad=True), use_reentrant=False).sum().backward()
        optimizer.step()

with section("autocast"):
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.randn(2, 4)).float().sum()
        loss.backward()
        optimizer.step()

with section("lbfgs"):
    other = net()
    lbfgs = torch.optim.LBFGS(other.parameters(), max_iter=3, line_search_fn=None)
    calls = []

    def closure():
        calls.append(1)
        lbfgs.zero_grad()
        loss = other(torch.ones(2, 4)).pow(2).sum()
        loss.backward()
        return loss

    for _ in range(25):
        lbfgs.step(closure)
print(json.dumps({"closure_calls": len(calls)}))

with section("gan"):
    generator, critic = net(), net(1)
    g, d = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
    for _ in range(60):
        fake = generator(torch.randn(2, 4))
        d.zero_grad()
        critic(fake.detach()).sum().backward()
        d.step()
        g.zero_grad()
        critic(fake).sum().backward()
        g.step()

with section("checkpoint"):
    import io

    torch.save(model.state_dict(), io.BytesIO())
