from __future__ import annotations

import pytest

from sweep.store import Location


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://me:secret@mlflow.example:5000/base", "https://mlflow.example:5000/base"),
        ("postgresql://me:secret@db/mlflow", "postgresql://db/mlflow"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("sqlite:////data/me@home/mlflow.db", "sqlite:////data/me@home/mlflow.db"),
        ("sqlite:///mlflow.db", "sqlite:///mlflow.db"),
    ],
)
def test_a_store_is_named_without_a_password_and_otherwise_as_it_is(uri: str, shown: str) -> None:
    assert Location(uri).shown == shown
