"""What a thread did at a stack sample."""

from dataclasses import replace

import pytest

from rankscope.analysis.hot_code import states
from rankscope.analysis.sample_state import BLOCKED as B
from rankscope.analysis.sample_state import NATIVE as N
from rankscope.analysis.sample_state import PYTHON as P
from rankscope.testing import places
from rankscope.testing.known_runs import BASE
from rankscope.testing.parts import Code
from rankscope.testing.simulation import ASLEEP, NATIVE, PYTHON

FUNCTION = f"{places.TRAIN}:72:update"


def seen(state, *, ms=100.0, known=True):
    """The states of the samples in a function of the user's."""
    run = replace(BASE, ranks=1, parts=(Code(ms=ms, place=FUNCTION, state=state),), thread_states=known).build()
    found, samples = states(run.facts, 0), run.facts.samples(0)
    functions = [stack.frames[-1].function for stack in samples.stack]
    return {int(s) for s, function in zip(found.state, functions, strict=True) if function == "update"}


@pytest.mark.parametrize("state, expected", [(ASLEEP, {B}), (PYTHON, {P}), (NATIVE, {N})])
@pytest.mark.parametrize("ms", [4.0, 100.0])
def test_the_kernel_and_the_interpreter_lock_tell_them_apart(state, expected, ms):
    assert seen(state, ms=ms) == expected


@pytest.mark.parametrize("state, expected", [(PYTHON, {P}), (NATIVE, {N})])
def test_without_the_kernel_s_letter_python_and_native_code_are_known(state, expected):
    assert seen(state, known=False) == expected


def test_without_the_kernel_s_letter_a_long_sleep_is_known_by_its_cpu_time():
    assert B in seen(ASLEEP, ms=200.0, known=False)


def test_hooks_are_user_code_that_torch_calls():
    hook = Code(ms=20.0, place=FUNCTION, at="in-backward")
    layer = Code(ms=20.0, place=f"{places.MODEL}:50:Block.forward", at="in-forward")
    run = replace(BASE, ranks=1, parts=(hook, layer)).build()
    found, samples = states(run.facts, 0), run.facts.samples(0)
    functions = {s.frames[-1].function for s, h in zip(samples.stack, found.hook, strict=True) if h}

    assert functions == {"update"}
