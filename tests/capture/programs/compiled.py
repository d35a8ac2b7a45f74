import json
import warnings

import torch
import torch._dynamo
from torch import nn
from torch._dynamo.utils import counters

warnings.simplefilter("ignore")
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def counted(name, run):
    torch._dynamo.reset()
    counters.clear()
    values = run()
    found = {
        "graphs": counters["stats"]["unique_graphs"],
        "calls": counters["stats"]["calls_captured"],
        "breaks": sum(counters["graph_break"].values()),
        "recompiles": len(torch._dynamo.utils.get_compilation_metrics()),
    }
    print(json.dumps({"what": name, **found, "values": values}), flush=True)


def train(call, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    values = []
    for size in (4, 4, 6, 8):
        loss = call(torch.ones(size, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        values.append(loss.item())
    return values


def wrapper():
    model = Block()
    return train(torch.compile(model, backend="eager"), model)


def in_place():
    model = Block()
    model.compile(backend="eager")
    return train(model, model)


def function():
    model = Block()

    @torch.compile(backend="eager", fullgraph=True)
    def step(x):
        return model(x) + model(x)

    return train(step, model)


def static():
    model = Block()
    return train(torch.compile(model, backend="eager", dynamic=False, fullgraph=True), model)


def initialiser():
    @torch.compile(backend="eager", fullgraph=True)
    def make(x):
        return nn.init.constant_(x, 2.0) + 1

    return make(torch.empty(3)).tolist()


def optimizer():
    model = Block()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile(backend="eager")
    def step():
        optimizer.step()

    for _ in range(3):
        model(torch.ones(2, 8)).sum().backward()
        step()
    return [p.sum().item() for p in model.parameters()]


def exported():
    model = Block()
    strict = torch.export.export(model, (torch.ones(2, 8),), strict=True)
    loose = torch.export.export(model, (torch.ones(2, 8),), strict=False)
    return [len(strict.graph.nodes), len(loose.graph.nodes)]


def traced():
    model = Block()
    graph = torch.fx.symbolic_trace(model)
    script = torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
    trace = torch.jit.trace(model, torch.ones(2, 8))
    return [len(graph.graph.nodes), str(graph.graph), str(script.graph), str(trace.graph).count("aten::")]


for run in (wrapper, in_place, function, static, initialiser, optimizer, exported, traced):
    counted(run.__name__, run)
