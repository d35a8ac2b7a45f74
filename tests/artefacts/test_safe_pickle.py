"""Nothing in a pickle ever runs."""

from __future__ import annotations

import io
import os
import pickle

import pytest

from rankscope.artefacts.reader import Unreadable
from rankscope.artefacts.safe_pickle import load_plain


class Evil:
    def __reduce__(self):
        return os.system, ("touch {}",)


HOSTILE = {
    "reduce": b"cos\nsystem\n(S'{}'\ntR.",
    "stack global": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02{}\x85R.",
    "inst": b"(S'{}'\nios\nsystem\n.",
    "obj": b"(cos\nsystem\nS'{}'\no.",
    "newobj": b"\x80\x02cos\nsystem\nS'{}'\n\x85\x81.",
    "build": b"\x80\x02}(S'a'\nK\x01ub.",
    "extension": b"\x80\x02\x82\x01.",
    "persistent": b"\x80\x02K\x01Q.",
    "persistent text": b"Pabc\n.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pickle_is_refused_and_runs_nothing(name, tmp_path):
    data = HOSTILE[name].replace(b"{}", f"touch {tmp_path}/ran".encode())

    with pytest.raises(Unreadable):
        load_plain(io.BytesIO(data))
    assert list(tmp_path.iterdir()) == []


def test_an_object_deep_inside_is_refused_before_anything_is_made():
    with pytest.raises(Unreadable, match="not executed"):
        load_plain(io.BytesIO(pickle.dumps({"entries": [{"a": [1, 2, Evil()]}]})))


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_come_back(protocol):
    value = {"a": [1, -2, 2.5, None, True, "text", (1, (2,))], "big": 1 << 80, "nested": {"x": {}}}

    assert load_plain(io.BytesIO(pickle.dumps(value, protocol))) == value


def test_a_few_bytes_do_not_take_gigabytes():
    with pytest.raises(Unreadable, match="byte 3: numbers a value 4,294,967,280"):
        load_plain(io.BytesIO(b"\x80\x02}r\xf0\xff\xff\xff."))


def test_a_cut_off_and_an_endless_pickle_are_refused():
    data = pickle.dumps(list(range(1000)))
    with pytest.raises(Unreadable, match="no whole pickle"):
        load_plain(io.BytesIO(data[:-5]))
    with pytest.raises(Unreadable, match="more than 100 bytes"):
        load_plain(io.BytesIO(data), 100)
