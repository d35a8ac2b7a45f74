"""Two ranks on gloo: what each sees, and that both see the same."""

import pytest


@pytest.fixture(scope="module")
def run(observed, tmp_path_factory):
    run = observed.observe_ranks(tmp_path_factory.mktemp("ranks"), str(observed.PROGRAMS / "two_ranks.py"))
    assert run.code == 0, run.errors
    return run


@pytest.fixture(scope="module")
def of(run):
    """Records of one kind in one part of the program, on one rank."""

    def of(kind, section, rank=0, name=None):
        return run.ranks[rank].of(kind, name, run.section(section, rank))

    return of


@pytest.fixture(scope="module")
def line(observed):
    lines = (observed.PROGRAMS / "two_ranks.py").read_text().splitlines()

    def line(text):
        number = next(i for i, x in enumerate(lines, 1) if text in x)
        return f"{observed.PROGRAMS / 'two_ranks.py'}:{number}:<module>"

    return line


def test_ranks_know_their_place(run):
    assert [(s.process.rank, s.process.world_size, s.process.backend) for s in run.ranks] == [
        (0, 2, "gloo"),
        (1, 2, "gloo"),
    ]
    assert [(s.lost, s.goodbye, s.process.sources_off) for s in run.ranks] == [(0, True, {}), (0, True, {})]
    assert [s.of("goodbye")[0].swallowed for s in run.ranks] == [0, 0]


def test_collectives_of_a_group_carry_the_same_numbers_on_all_ranks(run):
    def seen(rank):
        return {
            (c.group, c.sequence): (c.name, c.shape)
            for c in run.ranks[rank].of("collective")
            if not c.point_to_point and c.name not in ("gather", "scatter")
        }

    ours, theirs = seen(0), seen(1)
    shared = {key for key in ours if not key[0].startswith("group:") or key in theirs}
    only = {key[0] for key in ours.keys() ^ theirs.keys()}
    assert {k: ours[k] for k in shared} == {k: theirs[k] for k in shared}
    assert len(shared) > 100
    # Each rank is alone in one of the groups.
    assert len(only) == 2


def test_each_group_counts_its_own(of):
    for rank in (0, 1):
        calls = [c for c in of("collective", "groups", rank, "allreduce")]
        by_group = {}
        for c in calls:
            by_group.setdefault(c.group, []).append(c.sequence)
        assert sorted(len(v) for v in by_group.values()) == [3, 3, 3]
        assert sorted(v for g, v in by_group.items() if g != "group:default") == [[0, 1, 2], [0, 1, 2]]


def test_ddp_steps_reduce_in_backward(of, line):
    for rank in (0, 1):
        steps, backwards = of("step", "ddp", rank), of("backward", "ddp", rank)
        reductions = [c for c in of("collective", "ddp", rank, "allreduce") if c.in_backward]

        assert [s.micro_batches for s in steps] == [1] * 8
        assert {b.site for b in backwards} == {line("# ddp backward")} == {c.site for c in reductions}
        assert [b.collectives for b in backwards] == [len(reductions) // 8] * 8
        assert all(b.time_ns < b.last_enter_ns < b.time_ns + b.duration_ns for b in backwards)
        # 65 parameters in single precision, in one bucket or in two.
        assert sum(c.bytes for c in reductions) == 8 * 65 * 4


def test_buffers_are_broadcast_before_forward(of):
    waits = of("communication_wait", "ddp", 0, "broadcast buffers")
    forwards = of("forward", "ddp")

    assert len(waits) == len(forwards) == 8
    assert all(f.time_ns < w.time_ns < f.time_ns + f.duration_ns for f, w in zip(forwards, waits, strict=True))


def test_the_model_is_known_by_what_ddp_wraps(of):
    assert {f.model for f in of("forward", "ddp")} == {"Sequential"}
    assert {m.name for m in of("module", "ddp")} == {"", "0", "1", "2"} - {""} | {"Sequential"}


def test_no_sync_reduces_only_the_last_micro_batch(of):
    assert [b.collectives > 0 for b in of("backward", "no_sync")] == [False, False, True] * 2
    assert [s.micro_batches for s in of("step", "no_sync")] == [3, 3]
    assert len(of("call", "no_sync", 0, "DistributedDataParallel.no_sync")) == 4


def test_a_sampler_s_epoch_is_noted(of, line):
    assert [c.site for c in of("call", "ddp", 0, "DistributedSampler.set_epoch")] == [line("# the epoch")] * 2


def test_a_user_s_communication_hook_is_timed(of):
    (hook,) = of("communication_code", "hook")

    assert hook.name.endswith(":reduce_hook")
    assert hook.bytes == 5 * 4


def test_every_collective_of_the_user_is_seen(of, line):
    calls = of("collective", "collectives")

    assert [c.name for c in calls] == [
        "allreduce", "allreduce", "broadcast", "allgather", "_allgather_base", "_reduce_scatter_base",
        "alltoall_base", "gather", "scatter", "reduce", "barrier",
    ]  # fmt: skip
    assert (calls[0].site, calls[0].bytes, calls[0].shape) == (line("# all_reduce line"), 24, "float32[6]")
    numbers = [c.sequence for c in calls]
    assert numbers == list(range(numbers[0], numbers[0] + 11))


def test_waits_of_synchronous_and_asynchronous_calls(of, line):
    waits = of("communication_wait", "collectives")
    calls = of("collective", "collectives")

    assert len(waits) == 11
    assert [w.sequence for w in waits] == [c.sequence for c in calls]
    assert (waits[0].site, waits[1].site) == (line("# all_reduce line"), line("# wait line"))


def test_functional_collectives_and_inference_mode_are_seen(of):
    assert len(of("collective", "functional")) == 2
    assert [w.name for w in of("communication_wait", "functional")] == ["wait_tensor", "wait"]


def test_sends_and_receives_match_by_pair_and_direction(of):
    def seen(rank):
        return [(c.name, c.group, c.sequence, c.point_to_point) for c in of("collective", "point_to_point", rank)]

    assert sorted(seen(0)) == [
        ("recv", "group:default:1>0", 0, 1),
        ("recv", "group:default:1>0", 1, 1),
        ("send", "group:default:0>1", 0, 1),
        ("send", "group:default:0>1", 1, 1),
    ]
    assert sorted(seen(1)) == [
        ("recv", "group:default:0>1", 0, 1),
        ("recv", "group:default:0>1", 1, 1),
        ("send", "group:default:1>0", 0, 1),
        ("send", "group:default:1>0", 1, 1),
    ]


def test_fsdp_gathers_and_scatters(of):
    names = {c.name for c in of("collective", "fsdp")}
    optimizers = of("optimizer_step", "fsdp", 0, "Adam")

    assert {"_allgather_base", "_reduce_scatter_base"} <= names
    assert len(optimizers) == 25
    assert of("step", "fsdp")
