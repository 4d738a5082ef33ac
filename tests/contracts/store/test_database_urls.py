"""URLs of databases that would be guessed at are refused by name."""

from __future__ import annotations

import pytest

from models.errors import Rejected
from models.tables.urls import engine_url


@pytest.mark.parametrize(
    "url", ["postgresql://", "postgresql://db.example", "postgresql+psycopg://u:secret@h:5432/"]
)
def test_a_server_without_a_database_is_refused_and_its_password_hidden(url: str) -> None:
    with pytest.raises(Rejected) as caught:
        engine_url(url)
    assert caught.value.code == "database_url_invalid"
    assert "names no database" in caught.value.message
    assert "secret" not in caught.value.message


def test_a_named_database_is_taken() -> None:
    assert engine_url("postgresql://u@h/conductor").database == "conductor"
