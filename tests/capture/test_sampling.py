from rankscope.capture.sampling import Schedule


def steps(schedule, until):
    found, step = [0], 0
    while (step := schedule.next_after(step)) <= until:
        found.append(step)
    return found


def test_the_first_steps_then_powers_of_two_and_multiples_of_the_spacing_are_sampled():
    assert steps(Schedule(0.01), 70) == [0, 1, 2, 3, 4, 8, 16, 32, 48, 64]


def test_after_a_change_the_next_steps_are_sampled_too():
    schedule = Schedule(0.01)
    schedule.begin_anew(36)

    assert [step for step in range(36, 50) if schedule.sampled(step)] == [36, 37, 38, 48]


def test_next_after_and_sampled_agree():
    schedule = Schedule(0.01)
    schedule.account(cost_ns=2_000_000, step_ns=10_000_000)

    assert steps(schedule, 600) == [step for step in range(601) if schedule.sampled(step)]


def test_the_spacing_keeps_a_quarter_of_the_budget():
    schedule = Schedule(0.01)
    schedule.account(cost_ns=2_000_000, step_ns=10_000_000)

    late = steps(schedule, 1000)[-2:]

    assert late == [768, 896]
    assert 2_000_000 / ((late[1] - late[0]) * 10_000_000) <= 0.0025


def test_two_ranks_with_other_costs_share_the_steps_of_the_wider_spacing():
    cheap, dear = Schedule(0.01), Schedule(0.01)
    cheap.account(1_000_000, 20_000_000)
    dear.account(9_000_000, 20_000_000)

    assert set(steps(dear, 5000)) <= set(steps(cheap, 5000))
