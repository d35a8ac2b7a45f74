"""The store in a folder: who may open it, and what it costs."""

import os
import subprocess
import sys

import pytest

from rankscope.base.errors import UserError
from rankscope.store.embedded import EmbeddedStore
from rankscope.store.store import Batch, StoreError

HOLDER = """
import sys
from rankscope.store.embedded import EmbeddedStore
store = EmbeddedStore(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_told_which_process_has_the_folder(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        holder.stdout.readline()

        with pytest.raises(UserError, match=rf"the store {tmp_path} is open in process {holder.pid}: "):
            EmbeddedStore(tmp_path)

        holder.kill()
    with EmbeddedStore(tmp_path) as store:
        assert store.query("SELECT 1").column(0).to_pylist() == [1]


def test_a_second_opening_in_the_same_process_is_told_so(tmp_path):
    with EmbeddedStore(tmp_path), pytest.raises(UserError, match=f"is open in process {os.getpid()}: "):
        EmbeddedStore(tmp_path)


def test_another_folder_can_be_opened_only_after_the_first_is_closed(tmp_path):
    with EmbeddedStore(tmp_path / "a"), pytest.raises(UserError, match=f"has the store {tmp_path}/a open: close it"):
        EmbeddedStore(tmp_path / "b")

    with EmbeddedStore(tmp_path / "b") as store:
        assert store.query("SELECT 1").column(0).to_pylist() == [1]


def test_a_closed_store_says_so(tmp_path):
    store = EmbeddedStore(tmp_path)
    store.close()
    store.close()

    with pytest.raises(StoreError, match=f"the store {tmp_path} is closed"):
        store.query("SELECT 1")


def test_what_was_appended_is_there_after_opening_again(tmp_path, make_rows, make_names, contents):
    with EmbeddedStore(tmp_path) as store:
        store.migrate()
        store.append(Batch(1, 0, make_rows(3), make_names("a")))

    with EmbeddedStore(tmp_path) as store:
        store.migrate()
        acknowledged = store.append(Batch(2, 0, make_rows(1, first=3)))
        held = contents(store)

    assert acknowledged == 2
    assert held == {"commits": [0, 1, 2, 3], "texts": ["a"], "acknowledged": [1, 2]}


def test_a_path_that_the_engine_would_misread_is_refused(tmp_path):
    with pytest.raises(UserError, match="cannot use a path with"):
        EmbeddedStore(tmp_path / "what?")


def test_a_folder_that_cannot_be_made_is_said_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(UserError, match=f"cannot make the store's folder {tmp_path}/file/store: Not a directory"):
        EmbeddedStore(tmp_path / "file" / "store")


READER = """
import sys
from rankscope.store.open import open_store
store = open_store(sys.argv[1])
table = store.query("SELECT * FROM slots")
# Not ru_maxrss: that begins with the size of the process that started this one.
peak_kb = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(table.num_rows, int(peak_kb) // 1024)
"""


def test_a_reader_of_a_run_stays_below_400_mb(tmp_path, make_rows):
    with EmbeddedStore(tmp_path) as store:
        store.migrate()
        store.append(Batch(1, 0, make_rows(160_000)))

    answer = subprocess.run([sys.executable, "-c", READER, str(tmp_path)], capture_output=True, text=True, check=True)

    rows, peak_mb = map(int, answer.stdout.split())
    assert rows == 160_000
    assert peak_mb < 400
