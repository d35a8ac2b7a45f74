"""Compile logs of torch.compile."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from rankscope.artefacts.opening import head_of
from rankscope.artefacts.reader import Unreadable
from rankscope.artefacts.readers.torch_trace import TorchTrace
from rankscope.records.imported.compile_log import CodePlace, CompileLog, GraphBreak


def record(data: dict[str, object], payload: str = "", *, rank: int | None = 1, prefix: str = "", frame: int = 0,
           count: int = 0, attempt: int = 0) -> str:  # fmt: skip
    ids = {"frame_id": frame, "frame_compile_id": count, "attempt": attempt}
    whole = {**data, **({"rank": rank} if rank is not None else {}), **ids, **({"has_payload": "0"} if payload else {})}
    head = f"{prefix}V0804 12:34:12.816000 4711 torch/_dynamo/utils.py:1931] {json.dumps(whole)}"
    return "\n".join([head, *(f"\t{line}" for line in payload.split("\n") if payload)]) + "\n"


def artifact(name: str, payload: str, count: int = 0, attempt: int = 0) -> str:
    return record({"artifact": {"name": name, "encoding": "string"}}, payload, count=count, attempt=attempt)


CODE = """# Original ATen: [_c10d_functional.all_reduce]
        torch.ops._c10d_functional.all_reduce_.default(buf1, 'sum', '0')
        buf2 = torch.ops._c10d_functional.all_gather_into_tensor.default(buf1, 2, '0')
        assert_size_stride(buf2, (4,), (1,), 'torch.ops._c10d_functional.all_gather_into_tensor.default')
        #torch.ops._c10d_functional.wait_tensor.default(buf2)
        torch.ops._c10d_functional.wait_tensor.default(buf1)"""
PLAN = json.dumps(["torch.ops._c10d_functional.all_reduce_.default", "torch.ops._c10d_functional.wait_tensor.default",
                   "torch.ops._c10d_functional.all_gather_into_tensor.default",
                   "torch.ops._c10d_functional.wait_tensor.default"], indent=0)  # fmt: skip
NAMES = 'V0804 12:34:12.816000 4711 torch/_logging/structured.py:28] {"str": ["/home/me/train.py", 7]}\n'
START = record({"dynamo_start": {"stack": [{"line": 40, "name": "main", "filename": 7},
                                           {"line": 9, "name": "inner", "filename": "/x/torch/ext.py"}]}})  # fmt: skip
METRICS = {"co_name": "inner", "co_filename": "/x/torch/external.py", "co_firstlineno": 8, "start_time": 1754336052.5,
           "entire_frame_compile_time_s": 2.5, "dynamo_config": '{"recompile_limit": 8}',
           "config_suppress_errors": False}  # fmt: skip
CLOCK = record({"chromium_event": {}}, '{\n"name": "dynamo",\n"ts": 1754336052000000.0,\n"ph": "B"\n}')


def read(path: Path) -> CompileLog:
    (table,) = TorchTrace().read(path)
    assert isinstance(table, CompileLog)
    return table


def test_a_compilation_is_put_together_from_its_records(tmp_path):
    path = tmp_path / "dedicated_log_torch_trace_x3k9_7.log.gz"
    text = (CLOCK + NAMES + START + artifact("fx_graph_cache_miss", "{}") + artifact("aotautograd_cache_hit", "{}")
            + record({"inductor_output_code": {"filename": "/tmp/c.py"}}, CODE)
            + artifact("inductor_collective_schedule", PLAN)
            + record({"compilation_metrics": METRICS}))  # fmt: skip
    path.write_bytes(gzip.compress(text.encode()))

    table = read(path)
    (one,) = table.compilations

    assert TorchTrace().recognises(path, head_of(path))
    assert (table.rank, table.start_ns, table.num_broken) == (1, 1754336052 * 10**9, 0)
    assert (one.id, one.graph) == ("0/0", "-_0_0_0")
    assert one.code == CodePlace("/x/torch/external.py", 8, "inner")
    assert one.caller == CodePlace("/home/me/train.py", 40, "main")
    assert (one.seconds, one.limit, one.fx_cache, one.autograd_cache) == (2.5, 8, "miss", "hit")
    assert (one.collectives, one.waits) == (2, 1)
    assert one.planned == ("all_reduce_", "wait_tensor", "all_gather_into_tensor", "wait_tensor")


def test_recompilations_graph_breaks_and_failures_are_read(tmp_path):
    path = tmp_path / "trace_rank_3.log"
    reason = "0/0: tensor 'x' size mismatch at index 0. expected 2, actual 3"
    broke = (
        "Graph break in user code at /home/me/train.py:12\nReason: Unsupported: call print\nUser code traceback:\n"
        '  File "/home/me/train.py", line 12, in forward\n    print(x)'
    )
    failed = {**METRICS, "fail_type": "BackendCompilerFailed", "fail_reason": "backend='b' raised:\nRuntimeError: no"}
    path.write_text(
        artifact("recompile_reasons", json.dumps([reason]), count=1)
        + artifact("dynamo_graph_break_reason", broke, count=1)
        + record({"compilation_metrics": failed}, count=1, attempt=1)
    )

    table = read(path)
    (one,) = table.compilations

    assert (one.id, one.graph, one.reasons) == ("0/1", "-_0_1_1", (reason,))
    assert table.num_broken == 0
    assert one.failure == "BackendCompilerFailed: backend='b' raised: RuntimeError: no"
    assert table.breaks == (
        GraphBreak(CodePlace("/home/me/train.py", 12, "forward"), "Unsupported: call print"),
    )


def test_a_single_reason_is_no_json_though_its_record_says_so(tmp_path):
    path = tmp_path / "trace_rank_3.log"
    path.write_text(artifact("recompile_reasons", "0/0: tensor 'x' size mismatch", count=1))

    table = read(path)

    assert (table.compilations[0].reasons, table.num_broken) == (("0/0: tensor 'x' size mismatch",), 0)


def test_older_dialects_name_no_rank_or_put_it_before_the_line(tmp_path):
    path = tmp_path / "log_rank5.txt"
    path.write_text(record({"compilation_metrics": {"co_name": "f", "co_filename": "a.py"}}, rank=None))
    prefixed = tmp_path / "x.log"
    cache = {"artifact": {"name": "fx_graph_cache_hash"}}
    prefixed.write_text(
        record({"describe_tensor": {}}, rank=None, prefix="[rank6]:")
        + record(cache, '{"cache_state": "miss"}', rank=None, prefix="[rank6]:")
    )

    assert read(path).rank == 5
    assert read(path).compilations[0].seconds is None
    assert read(prefixed).rank == 6
    assert read(prefixed).compilations[0].fx_cache == "miss"


def test_what_is_damaged_is_counted_and_the_rest_is_used(tmp_path):
    path = tmp_path / "torch_trace_rank_0.log"
    good = record({"compilation_metrics": METRICS})
    path.write_text(
        "stray output of the program\n" + good.replace('"frame_compile_id": 0', '"frame_compile_id": 1')[:-30] + "\n"
        + record({"chromium_event": {}}, '{"ts": 1') + record({"dynamo_start": 3}) + record({"artifact": []})
        + good + "V0804 12:34:12.8 1 torch/x.py:1] \x00\n" + "\tpayload of nothing\n" + "V0804 12:34"
    )  # fmt: skip

    table = read(path)

    assert (table.num_broken, table.first_broken_line) == (5, 2)
    assert [c.seconds for c in table.compilations] == [2.5]


def test_other_files_are_not_recognised_or_refused_in_a_line(tmp_path):
    plain = b"I0804 12:34:12.816000 4711 server.cc:10] started\nother line\n"
    alien = b'I0804 12:34:12.816000 4711 server.cc:10] {"request": 1}\n'
    for head in (b"", b"\x80\x02}", plain, alien, b'{"traceEvents": []}', b"V0804"):
        assert not TorchTrace().recognises(tmp_path / "x.log", head)
    path = tmp_path / "cut.log.gz"
    noise = artifact("fx_graph_runnable", random.Random(0).randbytes(1 << 20).hex())
    path.write_bytes(gzip.compress((record({"compilation_metrics": METRICS}) + noise * 2).encode(), 1)[:-40])
    with pytest.raises(Unreadable, match="what stands before it is used"):
        list(TorchTrace().read(path))
    for content in (b"", b"\x00\xff" * 5000, b"V0804 12:34:12.8 1 torch/x.py:1] {"):
        path.write_bytes(content)
        with pytest.raises(Unreadable, match="no whole record"):
            list(TorchTrace().read(path))


def test_real_logs_are_read(data):
    table = read(data("torch_trace/collectives_parity/dedicated_log_torch_trace_rank_0.log.gz"))
    corrupted = read(data("torch_trace/single/simple_corrupted_json.log"))

    lacking = {c.graph: c.collectives - c.waits for c in table.compilations}
    assert lacking == {"-_0_0_0": 1, "-_0_1_0": 3, "-_0_2_0": 0, "-_0_3_0": 0}
    assert (table.rank, len(table.compilations), table.num_broken) == (0, 4, 0)
    assert (corrupted.rank, len(corrupted.compilations), corrupted.num_broken) == (None, 1, 1)


@pytest.mark.parametrize(("rank", "compilations", "hits", "misses"), [(1, 15, 10, 5), (3, 7, 7, 0)])
def test_compile_ids_and_cache_outcomes_of_real_ranks(data, rank, compilations, hits, misses):
    table = read(data(f"torch_trace/multi_rank_logs/dedicated_log_torch_trace_rank_{rank}.log.gz"))

    outcomes = [c.fx_cache for c in table.compilations]
    assert [c.id for c in table.compilations] == [f"0/{n}" for n in range(compilations)]
    assert (outcomes.count("hit"), outcomes.count("miss"), table.rank) == (hits, misses, rank)
