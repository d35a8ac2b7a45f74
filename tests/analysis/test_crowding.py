"""Run delay that other processes of the run cause goes with them, as far as the CPUs then suffice."""

from types import SimpleNamespace

import pytest

from rankscope.analysis.crowding import cpus_beside, cpus_of_workers, speed_without


class Machine:
    """Counters as rates: CPUs used by each process, CPU and delay of the ranks' training threads."""

    begin, end = 0, 10

    def __init__(self, cpus, busy, ranks, processes=(), *, threads=1, workers=()):
        self.cpus, self.size = cpus, len(ranks)
        process = SimpleNamespace(torch_threads=threads)
        self.ranks = [SimpleNamespace(pid=pid, workers=workers, process=process) for pid in ranks]
        self._rates = {("machine_busy_ns", 0): busy}
        for pid, (cpu, delay) in ranks.items():
            self._rates["main_cpu_ns", pid], self._rates["main_run_delay_ns", pid] = cpu, delay
        for pid, cpu in dict(processes).items():
            self._rates["cpu_ns", pid] = cpu

    def counter(self, name, pid):
        return SimpleNamespace(growth=lambda begin, end: self._rates.get((name, pid)))


def test_with_room_for_all_ranks_no_delay_is_left():
    machine = Machine(2, 2.0, {1: (0.6, 0.3), 2: (0.6, 0.2)})

    assert speed_without(machine, 0.8) == pytest.approx({0: 0.6 / 0.9, 1: 0.6 / 0.8})


def test_ranks_that_also_crowd_each_other_keep_a_part_of_their_delay():
    machine = Machine(2, 2.0, {1: (0.8, 0.5), 2: (0.8, 0.5)})

    # 2.0 - 0.4 + 1.0 CPUs are wanted, 2 are there: 0.6 of a delay of 1.0 stays.
    assert speed_without(machine, 0.4) == pytest.approx({0: 1.1 / 1.3, 1: 1.1 / 1.3})


@pytest.mark.parametrize(
    ("machine", "gone"),
    [
        (Machine(2, 2.0, {1: (0.8, 0.5)}), 0.0),
        (Machine(2, None, {1: (0.8, 0.5)}), 0.4),
        (Machine(8, 2.0, {1: (0.8, 0.0)}), 0.4),
        (Machine(0, 2.0, {1: (0.8, 0.5)}), 0.4),
    ],
    ids=["nothing goes", "machine not read", "nobody waits for a CPU", "CPUs not known"],
)
def test_nothing_is_said_where_nothing_is_known_or_gained(machine, gone):
    assert speed_without(machine, gone) == {}


def test_what_workers_use_is_added_up_as_far_as_it_was_read():
    assert cpus_of_workers(Machine(2, 2.0, {1: (0.8, 0.5)}, {11: 0.3, 12: 0.2}, workers=(11, 12, 13)), 0) == 0.5


def test_threads_beside_the_training_thread():
    ranks = {1: (0.6, 0.1)}

    assert cpus_beside(Machine(2, 2.0, ranks, {1: 0.85}), 0) == pytest.approx(0.25)
    assert cpus_beside(Machine(2, 2.0, ranks), 0) == 0.0
    assert cpus_beside(Machine(2, 2.0, ranks, {1: 1.7}, threads=2), 0) == 0.0  # they compute
