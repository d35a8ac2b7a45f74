import torch


def test_a_save_is_a_span_with_its_line(watched, tmp_path):
    def save_it():
        torch.save({"x": torch.ones(4)}, tmp_path / "x.pt")

    (span,) = watched(save_it).of("span")

    assert (span.name, span.detail) == ("checkpoint", "torch.save")
    assert span.site.partition("test_saves.py:")[2].startswith("6:")
    assert (tmp_path / "x.pt").stat().st_size > 0


def test_a_failing_save_fails_as_ever_and_is_recorded(watched, tmp_path):
    def save_it():
        try:
            torch.save({}, tmp_path / "missing" / "x.pt")
        except RuntimeError as error:
            assert "missing" in str(error)

    assert len(watched(save_it).of("span")) == 1
