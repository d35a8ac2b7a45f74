"""A store whose files are not as they were left says so in one line: what, where, what to do."""

import os

import pytest

from rankscope.base.errors import UserError
from rankscope.store.embedded import EmbeddedStore
from rankscope.store.store import Batch, in_words


def largest(folder, name):
    """The largest file of that name: that of the slots."""
    return max(folder.rglob(name), key=lambda path: path.stat().st_size)


def reopened(folder, sql="SELECT sum(a) FROM slots"):
    """The answer after opening the folder once more."""
    with EmbeddedStore(folder) as store:
        store.migrate()
        return store.query(sql).column(0).to_pylist()


@pytest.fixture
def folder(tmp_path, new_store, make_rows):
    with new_store(tmp_path / "store") as store:
        store.append(Batch(1, 0, make_rows(20_000, a=range(20_000))))
    return tmp_path / "store"


def test_changed_bytes(folder):
    file = largest(folder, "data.bin")
    file.write_bytes(bytes(255 - b for b in file.read_bytes()))

    with pytest.raises(UserError) as refused:
        reopened(folder)

    said = str(refused.value)
    assert said.startswith(f"the store {folder} is damaged (")
    assert said.endswith(": put a copy of the folder in its place, or record the run again")
    assert "DB::Exception" not in said
    assert len(said.splitlines()) == 1


def test_a_file_that_was_cut_off_is_not_read_as_no_records(folder):
    os.truncate(largest(folder, "data.bin"), 100)

    with pytest.raises(UserError, match=r"parts of slots that cannot be read: 1, set aside in .*/detached; delete"):
        reopened(folder)


def test_a_definition_that_cannot_be_read(folder):
    for file in (folder / "store").rglob("slots.sql"):
        file.write_text("nonsense")

    with pytest.raises(UserError, match=rf"the store {folder} cannot be opened \(.*\): its disk is full, "):
        reopened(folder)


def test_what_had_not_been_acknowledged_comes_again(folder, make_rows):
    with EmbeddedStore(folder) as store:
        store._insert("slots", _slots(make_rows(10, first=20_000)))
    part = next(path for path in folder.rglob("all_2_2_0") if path.is_dir())
    os.truncate(part / "data.bin", 10)

    assert reopened(folder, "SELECT count() FROM slots") == [20_000]


def _slots(rows):
    return b"".join(rows[at : at + 72] + b"\2" + bytes(7) for at in range(0, len(rows), 72))


@pytest.mark.parametrize(
    "text, words",
    [
        ("Code: 40. DB::Exception: Checksum doesn't match: corrupted data. Reference: 57: While reading or "
         "decompressing /x: (while reading column a). (CHECKSUM_DOESNT_MATCH)",
         "Checksum doesn't match: corrupted data. Reference: 57"),
        ("Code: 47. DB::Exception: Unknown expression identifier `nonsense` in scope SELECT 1. (UNKNOWN_IDENTIFIER)",
         "Unknown expression identifier `nonsense` in scope SELECT 1"),
        ("the connection was refused", "the connection was refused"),
    ],
)  # fmt: skip
def test_the_engine_s_words_without_its_codes(text, words):
    assert in_words(text) == words
