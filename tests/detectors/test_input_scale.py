"""Inputs that were scaled twice, or not at all."""

from contextlib import suppress

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.input_scale import InputScale
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.silent_contents import FAULTS, HEALTHY, first_layer, loader_batch, loss, training

RAW = {"integral": 1, "mean": 118.0, "std": 61.0, "least": 0, "most": 255}
TINY = {"mean": 0.0018, "std": 0.0009, "least": 0.0, "most": 1 / 255}


def found(*parts):
    return [(f.confidence, f.title) for f in InputScale().examine(training(*parts)())]


def test_names_the_layer_that_gets_pixels_as_they_are():
    (finding,) = InputScale().examine(FAULTS["input-scale"]())

    assert named(finding) == Named("input-scale", "warning", (0, 1), True, "data", "layers.0", None, None)
    assert (finding.first_step, finding.title) == (
        0, "an input of whole numbers up to 255, pixels that nobody has scaled, goes into layers.0 of Net"
    )  # fmt: skip
    assert evidence_of([finding]) == {
        "root mean square of the input's elements that are not zero": pytest.approx(132.8, abs=0.1),
        "mean": 118.0,
        "standard deviation": 61.0,
        "smallest element": 0.0,
        "largest element": 255.0,
        "looks at the input": 20.0,
    }


def test_finds_pixels_that_were_divided_twice():
    assert found(first_layer(**TINY)) == [
        (0.9, "an input that ends at 0.0039, which is 1/255: pixels divided by 255 twice, goes into layers.0 of Net")
    ]


def test_says_by_what_the_program_divided_a_batch_that_was_scaled():
    batch = {"mean": 0.46, "std": 0.23, "least": 0.0, "most": 1.0}

    assert found(loader_batch(**batch), first_layer(**TINY)) == [
        (0.95, "an input that ends at 0.0039, divided by 255 once more than its batch, goes into layers.0 of Net")
    ]


def test_finds_them_before_a_normalisation_whose_epsilon_outweighs_them():
    assert len(found(first_layer("BatchNorm1d", rms=0.0005, **TINY))) == 1


def test_finds_a_normalisation_that_was_taken_twice():
    images = {"mean": -2.1, "std": 4.4, "least": -11.37, "most": 9.93}

    assert found(first_layer(**images)) == [
        (0.85, "an input from -11.4 to 9.93: mean and deviation (those of ImageNet) taken twice, goes into layers.0 of "
               "Net")
    ]  # fmt: skip


def test_finds_raw_numbers_in_the_thousands():
    assert found(first_layer(mean=2100.0, std=900.0, least=3.0, most=9000.5)) == [
        (0.65, "an input of a size of 2.28e+03 (root mean square), which nobody has scaled, goes into layers.0 of Net")
    ]


def test_is_silent_before_a_normalisation():
    assert found(first_layer("BatchNorm2d", **RAW), first_layer("LayerNorm", rms=0.4, **TINY)) == []


def test_is_silent_about_quiet_sound():
    assert found(first_layer(mean=0.0, std=0.012, least=-0.2, most=0.2)) == []


def test_is_silent_about_codes_that_are_zero_most_of_the_time():
    assert found(first_layer(mean=0.0004, std=0.02, least=0.0, most=1.0, zeros=254, integral=1)) == []


@pytest.mark.parametrize("made", HEALTHY.values())
def test_is_silent_about_healthy_trainings(made):
    with suppress(CannotExamine):
        assert list(InputScale().examine(made())) == []


def test_cannot_examine_a_run_whose_first_layer_is_not_known():
    with pytest.raises(CannotExamine, match="the input of no first layer with weights was looked at"):
        found(loss())
