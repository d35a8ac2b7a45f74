"""Two torch.profiler traces are compared operator by operator."""

import json


def trace(path, *operators):
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": dur, "args": {}}
        for at, (name, dur) in enumerate(operators)
    ]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return str(path)


def test_what_was_added_went_or_takes_longer(rankscope, tmp_path):
    a = trace(tmp_path / "a.json", ("aten::mm", 100), ("aten::relu", 20))
    b = trace(tmp_path / "b.json", ("aten::mm", 300), ("aten::gelu", 50))

    code, out, _ = rankscope("compare", a, b, "--report-json", str(tmp_path / "c.json"))

    assert code == 0
    assert "On the host, 1 added, 1 removed" in out
    found = json.loads((tmp_path / "c.json").read_text())
    assert found["schema"] == "rankscope.trace-compare/1"
    assert [(x["name"], x["change"], x["calls"], round(x["more_ms"], 6)) for x in found["operations"]] == [
        ("aten::mm", "equal", [1, 1], 0.2),
        ("aten::gelu", "added", [0, 1], 0.05),
        ("aten::relu", "removed", [1, 0], -0.02),
    ]


def test_two_equal_traces_have_no_difference(rankscope, tmp_path):
    a = trace(tmp_path / "a.json", ("aten::mm", 100))

    assert "On the host: no difference" in rankscope("compare", a, a)[1]


def test_a_broken_trace_is_said_to_be(rankscope, tmp_path):
    a = trace(tmp_path / "a.json", ("aten::mm", 100))
    (tmp_path / "b.json").write_text((tmp_path / "a.json").read_text()[:60])

    code, out, error = rankscope("compare", a, str(tmp_path / "b.json"))

    assert (code, out) == (2, "")
    assert error.startswith(f"rankscope: {tmp_path / 'b.json'}")
