"""What the user asks for is what is recorded: levels, stages, modules."""

import pytest
import torch

from rankscope.base.clock import now_ns
from rankscope.capture import deep, observer
from rankscope.capture.config import Config


@pytest.fixture
def trained(observed, tmp_path):
    """Trains eight steps under a configuration; what was seen."""

    def run(change=None, **values):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        agent = observer.start(Config(ring_folders=(str(tmp_path),), budget=1.0, **values), now_ns())
        try:
            for i in range(8):
                if i == 5 and change is not None:
                    change(agent, model)
                model(torch.ones(2, 4)).sum().backward()
                optimizer.step()
        finally:
            observer.stop()
        (seen,) = observed.read(tmp_path)
        return seen

    yield run
    deep._known_paths.clear()


def module_steps(seen):
    found = {}
    for module in seen.of("module"):
        found.setdefault(module.name, []).append(module.step)
    return found


def test_light_records_no_module_and_no_stack(trained):
    seen = trained(level="light", sample_hz=200.0)

    assert (seen.of("module"), seen.of("stack_sample")) == ([], [])
    assert (len(seen.of("step")), len(seen.of("forward")), len(seen.of("backward"))) == (8, 8, 8)
    assert seen.process.level == "light"


def test_standard_records_modules_on_few_steps(trained):
    assert module_steps(trained()) == {name: [0, 1, 2, 3, 4] for name in ("0", "1", "1.0", "1.1")}


def test_deep_records_modules_on_every_step(trained):
    assert module_steps(trained(level="deep")) == {name: list(range(8)) for name in ("0", "1", "1.0", "1.1")}


def test_modules_that_match_are_recorded_on_every_step(trained):
    found = module_steps(trained(modules="1.*"))

    assert (found["0"], found["1.0"], found["1.1"]) == ([0, 1, 2, 3, 4], list(range(8)), list(range(8)))


def test_modules_may_be_chosen_while_it_runs(trained):
    def choose(agent, model):
        agent.configure(Config(agent.config.ring_folders, budget=1.0, modules="0"))

    assert module_steps(trained(choose))["0"] == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_stage_that_is_not_wanted_is_not_recorded(trained):
    seen = trained(stages=("forward", "optimizer"))

    assert {r.kind for r in seen.records} == {"step", "forward", "module", "optimizer_step", "goodbye"}
    assert seen.process.sources_off["backward"] == "stage backward is not among the configured ones"


def test_a_stage_may_be_left_out_while_it_runs(trained):
    def leave_out(agent, model):
        agent.configure(Config(agent.config.ring_folders, budget=1.0, stages=("forward", "optimizer")))

    assert len(trained(leave_out).of("backward")) == 5
