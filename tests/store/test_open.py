"""A location means a store."""

import builtins

import pytest

from rankscope.base.errors import UserError
from rankscope.store.clickhouse import ClickHouseStore
from rankscope.store.embedded import EmbeddedStore
from rankscope.store.open import open_store


def test_a_path_is_a_folder_store(tmp_path):
    with open_store(tmp_path) as store:
        assert isinstance(store, EmbeddedStore)
    with open_store(str(tmp_path)) as store:
        assert store.folder == tmp_path


def test_an_http_address_is_a_clickhouse_store(clickhouse_port):
    with open_store(f"http://127.0.0.1:{clickhouse_port}/runs") as store:
        assert isinstance(store, ClickHouseStore)
        assert store.address == f"http://127.0.0.1:{clickhouse_port}/runs"


@pytest.mark.parametrize(
    ("location", "says"),
    [
        ("ftp://host/x", "a store cannot be at ftp://host/x: give a folder or an http:// address of ClickHouse"),
        ("http://127.0.0.1:1/x", "no ClickHouse answers at http://127.0.0.1:1/x"),
        ("http://127.0.0.1:1/a;b", "'a;b' is no name of a database"),
    ],
)
def test_a_bad_location_is_said_in_one_line(location, says):
    with pytest.raises(UserError, match=says) as error:
        open_store(location)

    assert "\n" not in str(error.value)


def test_a_missing_client_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without_client(name, *args, **kwargs):
        if name.startswith("clickhouse_connect"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_client)

    with pytest.raises(UserError, match=r"pip install 'rankscope\[clickhouse\]'"):
        open_store("http://host")
