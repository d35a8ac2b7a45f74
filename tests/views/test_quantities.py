import pytest

from rankscope.views.quantities import share_text, time_text, value_text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "not measured"),
        (0, "0 ms"),
        (0.0004, "400 ns"),
        (0.00099951, "1.00 µs"),
        (0.74, "740 µs"),
        (0.99951, "1.00 ms"),
        (7.4, "7.40 ms"),
        (58.21, "58.2 ms"),
        (999.4, "999 ms"),
        (999.6, "1.00 s"),
        (-58.21, "-58.2 ms"),
        (96_400, "96.4 s"),
        (119_600, "2 min 00 s"),
        (7_800_000, "2 h 10 min"),
    ],
)
def test_a_time_has_the_unit_that_fits(ms, text):
    assert time_text(ms) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "not measured"), (0, "0 %"), (0.0002, "< 0.1 %"), (0.053, "5.3 %"), (0.0996, "10 %"), (1, "100 %")],
)
def test_a_share_is_in_percent(share, text):
    assert share_text(share) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "ms", "not finite"),
        (2100, "us", "2.10 ms"),
        (5e9, "ns", "5.00 s"),
        (0.71, "share", "71 %"),
        (71, "%", "71 %"),
        (68_400_000_000, "bytes", "63.7 GiB"),
        (9.2, "x", "9.2x"),
        (18234, "count", "18,234"),
        (3.1e-7, "", "3.1e-07"),
        (94.2, "MB/s", "94.2 MB/s"),
    ],
)
def test_a_value_of_evidence_has_its_unit(value, unit, text):
    assert value_text(value, unit) == text
