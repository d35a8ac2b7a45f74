"""Structured logs of torch.compile, whole and damaged."""

from __future__ import annotations

import json

import pytest

from rankscope.artefacts.opening import head_of
from rankscope.artefacts.reader import Unreadable
from rankscope.artefacts.readers.torch_trace import TorchTrace


def line(event, payload="", rank=None):
    prefix = f"[rank{rank}]:" if rank is not None else ""
    shown = "".join(f"\t{text}\n" for text in payload.splitlines())
    return f"V0804 12:34:15.529000 1142 torch/_dynamo/utils.py:1626] {prefix}{json.dumps(event)}\n{shown}"


def compiled(number, *, reason="", frame=0, size=None):
    at = {"frame_id": frame, "frame_compile_id": number, "attempt": 0}
    text = ""
    if reason:
        text += line({"artifact": {"name": "recompile_reasons"}, **at}, json.dumps([f"0/{number - 1}: {reason}"]))
    text += line({"dynamo_start": {"stack": [{"line": 31, "name": "main", "filename": 1},
                                             {"line": 6, "name": "kernel", "filename": 1}]}, **at})  # fmt: skip
    text += line({"artifact": {"name": "fx_graph_cache_miss"}, **at}, "{}")
    text += line({"compilation_metrics": {"co_name": "kernel", "entire_frame_compile_time_s": 0.5}, **at})
    return text


STRINGS = line({"str": ["/home/me/train.py", 1]})


def read(tmp_path, text, name="dedicated_log_torch_trace_rank_3.log"):
    path = tmp_path / name
    path.write_text(text)
    assert TorchTrace().recognises(path, head_of(path))
    (log,) = TorchTrace().read(path)
    return log


def test_each_compilation_comes_with_its_place_its_reason_and_its_time(tmp_path):
    log = read(tmp_path, STRINGS + compiled(0) + compiled(1, reason="size mismatch"))

    assert (log.rank, log.damaged) == (3, 0)
    assert [(c.id, c.function, c.file, c.line, c.seconds, c.reason, c.caches) for c in log.compilations] == [
        ("0/0", "kernel", "/home/me/train.py", 6, 0.5, "", ("fx_graph_cache_miss",)),
        ("0/1", "kernel", "/home/me/train.py", 6, 0.5, "0/0: size mismatch", ("fx_graph_cache_miss",)),
    ]


def test_what_dynamo_raised_is_its_last_line(tmp_path):
    event = {"artifact": {"name": "dynamo_error"}, "frame_id": 0, "frame_compile_id": 0}
    log = read(tmp_path, line(event, "Traceback (most recent call last):\n  File x\nRuntimeError: bad"))

    assert log.compilations[0].error == "RuntimeError: bad"


def test_the_order_of_collectives_is_kept(tmp_path):
    event = {"artifact": {"name": "inductor_collective_schedule"}, "frame_id": 0, "frame_compile_id": 0}
    names = [f"torch.ops._c10d_functional.{name}.default" for name in ("all_reduce_", "wait_tensor")]

    assert read(tmp_path, line(event, json.dumps(names))).compilations[0].schedule == ("all_reduce_", "wait_tensor")


def test_damaged_lines_are_counted_and_the_rest_is_read(tmp_path):
    log = read(tmp_path, STRINGS + compiled(0) + "V0804 12:34:15.529000 1 a.py:1] {broken\ngarbage\n" + compiled(1))

    assert (len(log.compilations), log.damaged) == (2, 2)


def test_the_rank_in_a_line_goes_before_the_name(tmp_path):
    assert read(tmp_path, line({"frame_id": 0, "frame_compile_id": 0}, rank=5)).rank == 5


def test_another_text_is_refused(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("")

    assert not TorchTrace().recognises(path, b"loss 1.0\nloss 0.9\n")
    with pytest.raises(Unreadable):
        list(TorchTrace().read(path))


@pytest.mark.parametrize("name", ["simple.log", "simple_corrupted_json.log"])
def test_real_logs_are_read_also_where_they_are_damaged(data, name):
    (log,) = TorchTrace().read(data(f"torch_trace/single/{name}"))

    assert [one.id for one in log.compilations] == ["0/0"]
