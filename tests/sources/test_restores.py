"""Checkpoints that are written and come back."""

import io

import torch


def test_files_and_states_are_told_in_their_order(watched, tmp_path):
    path = tmp_path / "c.pt"

    def program():
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(schedule.state_dict())
        torch.save(model.state_dict(), io.BytesIO())

    seen = watched(program).of("call")

    names = [c.name for c in seen if "load" in c.name or "save" in c.name]
    assert names == [
        f"torch.save {path} with optimizer",
        f"torch.load {path} with optimizer",
        "Module.load_state_dict",
        "Optimizer.load_state_dict",
        "LRScheduler.load_state_dict",
        "torch.save memory",
    ]


def test_the_functions_are_put_back(watched):
    before = torch.load, torch.save, torch.nn.Module.load_state_dict, torch.optim.Optimizer.load_state_dict
    watched(lambda: None)

    assert before == (
        torch.load, torch.save, torch.nn.Module.load_state_dict, torch.optim.Optimizer.load_state_dict,
    )  # fmt: skip
