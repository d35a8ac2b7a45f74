"""`rankscope timeline`, from a run in a store and from traces of torch.profiler, read back by a reader of our own."""

import importlib.util
import io
import json
import os
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import make_tables
from rankscope.base.manifest import Manifest, write_manifest
from rankscope.base.rundir import RunDir
from rankscope.records.collective import Collective, PendingCollective
from rankscope.records.payload import Payload
from rankscope.report.build import build_report
from rankscope.report.timeline import of_run, window
from rankscope.store.open import open_store
from rankscope.store.store import Batch
from rankscope.testing.loader import Loader
from rankscope.testing.parts import Code, Deep, GcPause
from rankscope.testing.runs import RunBuilder
from rankscope.testing.stops import STOPS
from rankscope.views.perfetto.native import NativeWriter

HERE = Path(__file__).resolve()
ID = "20260101-100000-aaaa"
STEPS = 60


@pytest.fixture(scope="module")
def reader():
    file = HERE.parents[1] / "views" / "perfetto_reader.py"
    spec = importlib.util.spec_from_file_location("perfetto_reader", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["perfetto_reader"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def recorded(root, rows, payloads):
    """A run's folder as a recorder that has ended leaves it, without a report."""
    run = RunDir(root)
    root.mkdir(parents=True)
    write_manifest(run, Manifest(root.name, root.name, ("python", "train.py"), "2026-01-01T10:00:00Z", finished=True))
    with open_store(run.store) as store:
        store.migrate()
        texts = tuple(Payload(0, *payload) for payload in payloads)
        store.append(Batch(1, 0, rows.tobytes(), texts))
    return root


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    made = RunBuilder(
        ranks=2, steps=STEPS, loader=Loader(workers=1),
        parts=(
            Code(ms=20, ranks=(1,)), GcPause(ms=5, when=lambda rank, step: step % 10 == 0),
            Deep(path="fc", when=lambda rank, step: step == 30),
        ),
    ).build()  # fmt: skip
    return recorded(tmp_path_factory.mktemp("recorded") / ID, made.rows, made.payloads)


@pytest.fixture
def timeline(rankscope, reader, tmp_path):
    """`timeline(what, ...)` -> (what is in the file, what was said)."""

    def call(*words):
        code, out, error = rankscope("timeline", *map(str, words), "-o", "t.pftrace")
        assert (code, out) == (0, ""), error
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
        found = reader.decode((tmp_path / "t.pftrace").read_bytes())
        assert found.disorder == 0
        assert all(s.end >= s.start for s in found.slices)
        assert all(len(chain) > 1 for chain in found.chains().values())
        return found, error

    return call


def refused(answer):
    code, out, error = answer
    assert (code, out, error.count("\n")) == (2, "", 1)
    return error.removeprefix("rankscope: ").rstrip("\n")


class TestARun:
    def test_each_rank_is_a_process_with_its_lanes(self, timeline, run_folder):
        found, said = timeline(run_folder)

        paths = {found.path(uuid) for uuid in found.tracks}
        assert {path for path in paths if path[0] == "rank 1"} == {
            ("rank 1",), ("rank 1", "steps"), ("rank 1", "training thread"), ("rank 1", "collectives"),
            ("rank 1", "modules"), ("rank 1", "loader worker 0"), ("rank 1", "counters"),
            ("rank 1", "counters", "cpu use"), ("rank 1", "counters", "main thread waits for a CPU"),
            ("rank 1", "counters", "learning rate"),
        }  # fmt: skip
        heads = [(track["name"], track["pid"]) for track in found.tracks.values() if track["pid"]]
        assert heads == [("rank 0", 1000), ("rank 1", 1001)]
        assert "steps 0 to 59" in said and "https://ui.perfetto.dev" in said

    def test_phases_waits_and_pauses_nest_in_the_thread(self, timeline, run_folder):
        found, _ = timeline(run_folder, "--steps", "41:42", "--ranks", "0")

        names = [(s.depth, s.name) for s in found.on("training thread")]
        assert [name for name in names if name[1] in ("forward Net", "backward", "waits for allreduce")] == [
            (0, "forward Net"), (0, "backward"), (1, "waits for allreduce"),
        ]  # fmt: skip
        assert [s.name for s in found.on("steps")] == ["step 40", "step 41", "step 42"]

    def test_matched_collectives_are_joined_from_the_first_to_the_last_rank(self, timeline, run_folder):
        found, _ = timeline(run_folder)

        chains = found.chains()
        assert len(chains) == 2 * STEPS + 1
        for chain in chains.values():
            assert Counter(found.path(s.track)[0] for s in chain) == {"rank 0": 1, "rank 1": 1}
            assert len({(s.name, s.args["group"], s.args["sequence"]) for s in chain}) == 1
            assert sorted(ends for s in chain for _, ends in s.flows) == [False, True]
            late = {s.args["last rank to enter"] for s in chain}
            assert late <= {0, 1} and len(late) == 1

    def test_findings_stand_on_top_with_their_evidence(self, timeline, run_folder):
        found, _ = timeline(run_folder)

        (finding,) = found.on("findings")
        assert "update_metrics (train.py:72)" in finding.name
        assert (finding.args["cause"], finding.args["ranks"]) == ("slow-code", "rank 1")
        assert finding.args["evidence 1"].startswith("rank 1: ")
        first, last = (int(word) for word in finding.args["steps"].split(" to "))
        steps = {s.name: s for s in found.on("steps") if found.path(s.track)[0] == "rank 0"}
        assert finding.start == steps[f"step {first}"].start
        assert finding.end >= steps[f"step {last}"].end
        assert found.path(finding.track) == ("Rankscope", "findings")

    def test_the_clock_and_its_error_are_shown(self, timeline, run_folder):
        found, _ = timeline(run_folder)

        (clock,) = (s for s in found.slices if s.category == "clock")
        assert clock.name == "clock: ±0 µs (one monotonic clock of the node)"
        assert found.path(clock.track) == ("Rankscope", clock.name)
        assert clock.args["max_error_us"] == 0
        assert (clock.start, clock.end) == (0, max(s.end for s in found.slices))

    def test_counters(self, timeline, run_folder):
        found, _ = timeline(run_folder)

        by_name = {}
        for track, _, value in found.readings:
            by_name.setdefault(found.tracks[track]["name"], []).append(value)
        assert set(by_name["cpu use"]) == {100.0}
        assert set(by_name) == {
            "cpu use", "main thread waits for a CPU", "learning rate", "busy CPUs of the machine",
        }  # fmt: skip

    def test_only_some_steps_and_ranks(self, timeline, run_folder):
        whole, _ = timeline(run_folder)
        part, said = timeline(run_folder, "--steps", "20:23", "--ranks", "1")

        assert {found for found in map(part.path, part.tracks) if found[0].startswith("rank ")} < {
            found for found in map(whole.path, whole.tracks) if found[0] == "rank 1"
        }
        assert [s.name for s in part.on("steps")] == ["step 19", "step 20", "step 21", "step 22", "step 23"]
        assert part.chains() == {}
        assert "steps 20 to 22" in said

    @pytest.mark.parametrize(
        "asked, drawn",
        [("58:", "steps 58 to 59"), (":1", "step 0"), ("7", "step 7"), ("50:999", "steps 50 to 59")],
    )
    def test_open_ranges(self, timeline, run_folder, asked, drawn):
        assert f"({drawn}, " in timeline(run_folder, "--steps", asked)[1]

    def test_of_a_long_run_the_newest_steps_are_drawn(self, timeline, run_folder, monkeypatch):
        monkeypatch.setattr(window, "MOST_SLICES", 200)

        found, said = timeline(run_folder)

        steps = [s.name for s in found.on("steps") if found.path(s.track)[0] == "rank 0"]
        assert 100 < len(found.slices) < 260
        assert steps[-1] == "step 59" and len(steps) < 15
        assert said.startswith("rankscope: too much for one look: steps ")
        assert "--steps A:B chooses others" in said

    def test_the_second_time_the_kept_report_is_taken(self, timeline, run_folder):
        timeline(run_folder)
        before = (run_folder / "report.json").stat().st_mtime_ns
        timeline(run_folder)

        assert (run_folder / "report.json").stat().st_mtime_ns == before

    def test_a_damaged_report_is_made_again(self, timeline, run_folder):
        (run_folder / "report.json").write_text("{")

        found, _ = timeline(run_folder)

        assert len(found.on("findings")) == 1

    def test_json_by_its_name(self, rankscope, run_folder, tmp_path):
        code, _, error = rankscope("timeline", str(run_folder), "-o", "t.json")

        events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
        assert code == 0, error
        assert Counter(e["ph"] for e in events)["s"] == 2 * STEPS + 1
        slices = [e for e in events if e["ph"] == "X"]
        lanes = {}
        for e in slices:
            lanes.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
        for spans in lanes.values():
            assert all(b <= c or d <= b + 0.001 or a == c for (a, b), (c, d) in combinations(sorted(spans)[:60], 2))


class TestStops:
    """In memory: what stops leave has few steps, calls without an end, and exceptions."""

    @pytest.fixture
    def of(self, reader):
        def make(facts):
            report = build_report(facts, Manifest("x", "x", (), "2026-01-01T10:00:00Z"))
            chosen = window.Window(*of_run.whole_run(facts), None, None)
            stream = io.BytesIO()
            writer = NativeWriter(stream)
            for part in of_run.run_parts(facts, report, lambda rank: True, of_run.run_steps(facts), chosen):
                writer.write(part)
            return reader.decode(stream.getvalue())

        return make

    @pytest.mark.parametrize("cause", ["missing-collective", "rank-exception", "rendezvous-failure", "stuck-rank"])
    def test_the_finding_is_marked_though_steps_are_missing(self, of, cause):
        (finding,) = of(STOPS[cause]()).on("findings")

        assert finding.args["cause"] == cause
        assert finding.end >= finding.start

    def test_exceptions_and_ends_are_marks(self, of):
        found = of(STOPS["rank-exception"]())

        marks = [(found.path(mark.track), mark.name.partition(":")[0]) for mark in found.marks]
        assert (("rank 1", "events"), "process ended") in marks
        assert any(path == ("rank 1", "events") and name.startswith("ends with ") for path, name in marks)

    def test_a_call_that_never_came_back_lasts_to_the_end(self, of):
        made = RunBuilder(ranks=2, steps=5).build()
        calls = made.rows[(made.rows["kind"] == Collective.code) & (made.rows["process"] == 1000)]
        pending = calls[[-2, -1, -1]]  # the one before has come back, the last one has not, and was noted twice
        pending["kind"] = PendingCollective.code
        lost = (made.rows["kind"] == Collective.code) & (made.rows["process"] == 1000)
        lost &= made.rows["a"] == calls["a"][-1]
        rows = np.concatenate([made.rows[~lost], pending])

        found = of(Facts(make_tables(rows, list(made.payloads))))

        (call,) = (s for s in found.slices if s.name.startswith("has not returned"))
        assert call.name == "has not returned: allreduce"
        assert call.end == max(s.end for s in found.slices)


class TestWhatCannotBeDone:
    @pytest.mark.parametrize(
        "words, message",
        [
            (("nothing",), "there is no run 'nothing' in "),
            (("no/such/folder",), "no/such/folder: does not exist; see `rankscope runs`"),
            (("RUN", "--steps", "60:70"), "--steps 60:70: there is no such step here; there are steps 0 to 59"),
            (("RUN", "--steps", "9:3"), "argument --steps: 9:3 is empty"),
            (("RUN", "--steps", "x"), "argument --steps: 'x' is no range of steps: write A:B"),
            (("RUN", "--steps", ":"), "argument --steps: ':' is no range of steps: write A:B"),
            (("RUN", "--ranks", "0,7"), "--ranks 7: there is no such rank; there are ranks 0 and 1"),
            (("RUN", "--ranks", "3-1"), "argument --ranks: '3-1' is no list of ranks: write for example 0,2-3"),
            (("RUN", "RUN"), "give one run, or traces of torch.profiler and no run"),
            (("text.txt",), "text.txt: is no trace of torch.profiler; give traces of torch.profiler, or a run"),
            (("empty",), "empty: there are no files in it"),
        ],
    )
    def test_one_line_and_no_file(self, rankscope, run_folder, tmp_path, words, message):
        (tmp_path / "empty").mkdir()
        (tmp_path / "text.txt").write_text("hello")
        words = [str(run_folder) if word == "RUN" else word for word in words]

        line = refused(rankscope("timeline", *words, "-o", "t.pftrace"))

        assert line.startswith(message)
        assert not (tmp_path / "t.pftrace").exists()

    def test_a_run_without_records(self, rankscope, add_run):
        root = add_run(ID)

        assert "nothing was recorded that could be drawn" in refused(rankscope("timeline", str(root), "-o", "t"))

    def test_a_store_that_is_none(self, rankscope, add_run):
        (add_run(ID) / "store").write_text("not a folder")

        assert "store" in refused(rankscope("timeline", "last", "-o", "t"))

    @pytest.mark.parametrize("place", ["no/such/t", "folder"])
    def test_a_place_that_cannot_be_written(self, rankscope, run_folder, tmp_path, place):
        (tmp_path / "folder").mkdir()

        assert refused(rankscope("timeline", str(run_folder), "-o", place)).startswith(f"{place}: ")

    def test_a_full_disk(self, rankscope, run_folder):
        line = refused(rankscope("timeline", str(run_folder), "-o", "/dev/full"))

        assert line == "/dev/full: cannot be written (No space left on device)"


def event(name, cat, lane, ts, dur, **args):
    return {"ph": "X", "name": name, "cat": cat, "pid": lane[0], "tid": lane[1], "ts": ts, "dur": dur, "args": args}


def kineto(path, rank, offset_us, *, steps=6, late_us=0.0, sequence=True, group="0"):
    """A trace as PyTorch 2.6 writes it: each step has a kernel and an all-reduce that all ranks end at one moment."""
    thread, compute, reduce = (100 + rank, 100), (0, 7), (0, 20)
    events = []
    for step in range(steps):
        at = 1_700_000_000_000_000.0 + offset_us + step * 1_000
        events += [
            event(f"ProfilerStep#{step + 4}", "user_annotation", thread, at, 990),
            event("aten::mm", "cpu_op", thread, at + 10, 60, **{"External id": step}),
            event("cudaLaunchKernel", "cuda_runtime", thread, at + 20, 10, correlation=10 + 2 * step),
            event("cudaLaunchKernel", "cuda_runtime", thread, at + 40, 10, correlation=11 + 2 * step),
            event("gemm", "kernel", compute, at + 100, 200 + late_us, correlation=10 + 2 * step, stream=7, device=0),
        ]
        args = {
            "Collective name": "allreduce", "Process Group Name": group, "Process Group Ranks": "[0, 1]",
            "Group size": 2, "In msg nelems": 4096, "Out msg nelems": 4096, "dtype": "Float",
            "correlation": 11 + 2 * step, "stream": 20, "device": 0,
        }  # fmt: skip
        if sequence:
            args["Seq"] = step
        begin = at + 310 + late_us
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
        events.append(event(name, "kernel", reduce, begin, at + 600 - begin, **args))
    trace = {
        "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "numSms": 132}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}, "traceEvents": events,
    }  # fmt: skip
    path.write_text(json.dumps(trace))
    return path


class TestTraces:
    @pytest.fixture
    def traces(self, tmp_path):
        folder = tmp_path / "traces"
        folder.mkdir()
        kineto(folder / "rank0.json", 0, 0.0)
        kineto(folder / "rank1.json", 1, 5_000_000.0, late_us=50.0)
        return folder

    def test_each_rank_is_a_process_with_threads_and_streams(self, timeline, traces):
        found, said = timeline(traces)

        assert {found.path(uuid) for uuid in found.tracks if found.path(uuid)[0] == "rank 1"} == {
            ("rank 1",), ("rank 1", "thread 100"), ("rank 1", "stream 7"), ("rank 1", "stream 20"),
        }  # fmt: skip
        assert "steps 4 to 9" in said

    def test_matched_collectives_put_the_ranks_on_one_clock(self, timeline, traces):
        found, _ = timeline(traces)

        ends = {}
        for s in found.on("stream 20"):
            ends.setdefault(found.path(s.track)[0], []).append(s.end)
        (clock,) = (s for s in found.slices if s.category == "clock")
        error_ns = clock.args["max_error_us"] * 1_000
        assert 0 < error_ns < 300_000
        assert all(abs(a - b) <= error_ns for a, b in zip(ends["rank 0"], ends["rank 1"], strict=True))
        assert clock.name.startswith("clock: ±")

    def test_flows_join_launches_and_collectives(self, timeline, traces):
        found, _ = timeline(traces)

        kinds = Counter(tuple(sorted({found.path(s.track)[1] for s in chain})) for chain in found.chains().values())
        assert kinds == {("stream 20",): 6, ("stream 7", "thread 100"): 12, ("stream 20", "thread 100"): 12}

    def test_arguments_are_kept(self, timeline, traces):
        found, _ = timeline(traces, "--ranks", "0")

        args = found.on("stream 20")[2].args
        assert {args[key] for key in ("operation", "ranks", "dtype")} == {"allreduce", "[0, 1]", "Float"}
        assert (args["elements in"], args["correlation"], args["group size"]) == (4096, 15, 2)

    def test_some_steps(self, timeline, traces):
        found, said = timeline(traces, "--steps", "5:7")

        steps = {s.name for s in found.slices if s.name.startswith("ProfilerStep")}
        assert {"ProfilerStep#5", "ProfilerStep#6"} <= steps <= {f"ProfilerStep#{n}" for n in (4, 5, 6, 7)}
        assert "steps 5 to 6" in said

    def test_what_nothing_ties_together_begins_at_0(self, timeline, tmp_path):
        for rank in (0, 1):
            kineto(tmp_path / f"rank{rank}.json", rank, rank * 5e6, group=f"{rank}", sequence=False)

        found, _ = timeline(tmp_path / "rank0.json", tmp_path / "rank1.json")

        (clock,) = (s for s in found.slices if s.category == "clock")
        begins = {found.path(s.track)[0]: s.start for s in found.slices if s.name == "ProfilerStep#4"}
        assert clock.name == "clock: offsets not known (nothing ties them together; each begins at 0)"
        assert "max_error_us" not in clock.args
        assert begins == {"rank 0": 0, "rank 1": 0}

    def test_two_traces_of_one_rank_are_both_drawn(self, timeline, tmp_path):
        a, b = kineto(tmp_path / "a.json", 0, 0.0), kineto(tmp_path / "b.json", 0, 500.0)

        found, _ = timeline(a, b)

        assert [t["name"] for t in found.tracks.values() if t["pid"]] == ["rank 0 (a.json)", "rank 0 (b.json)"]

    def test_files_that_are_none_are_told(self, timeline, traces):
        (traces / "notes.txt").write_text("nothing to see")
        (traces / "cut.json").write_bytes((traces / "rank0.json").read_bytes()[:90])

        _, said = timeline(traces)

        assert f"rankscope: {traces}/notes.txt: is no trace of torch.profiler\n" in said
        assert f"rankscope: {traces}/cut.json: " in said

    def test_of_many_spans_the_newest_steps_are_drawn(self, timeline, traces, monkeypatch):
        monkeypatch.setattr(window, "MOST_SLICES", 40)

        found, said = timeline(traces)

        assert "too much for one look" in said
        steps = {s.name for s in found.slices if s.name.startswith("ProfilerStep")}
        assert "ProfilerStep#9" in steps and "ProfilerStep#5" not in steps

    def test_real_traces_of_eight_ranks(self, timeline):
        places = (os.environ.get("RANKSCOPE_DATA", ""), str(HERE.parents[3] / "shared" / "data"))
        folder = next((p for place in places if place and (p := Path(place) / "kineto/h100-8rank").is_dir()), None)
        if folder is None:
            pytest.skip("the real files are not at hand ($RANKSCOPE_DATA/kineto/h100-8rank)")

        found, _ = timeline(folder)

        assert [t["name"] for t in found.tracks.values() if t["pid"]] == [f"rank {rank}" for rank in range(8)]
        between = [c for c in found.chains().values() if len({found.path(s.track)[0] for s in c}) > 1]
        assert {len({found.path(s.track)[0] for s in c}) for c in between} == {8}
        assert len(between) >= 70
        assert any(s.args["ranks"] == "rank 1" for s in found.on("findings"))
