import gc


def test_a_long_collection_is_recorded_and_a_short_one_is_not(watched):
    def collect():
        gc.collect(0)
        cycles = [[] for _ in range(200_000)]
        for cycle in cycles:
            cycle.append(cycle)
        del cycles, cycle
        gc.collect()

    pauses = watched(collect).of("gc_pause")

    assert max(p.collected for p in pauses) >= 199_000
    assert min(p.duration_ns for p in pauses) >= 300_000
    assert {p.generation for p in pauses} <= {0, 1, 2}
