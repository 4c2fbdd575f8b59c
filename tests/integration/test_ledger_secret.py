"""The ledger's secret: made once, the owner's alone, the same after a restart; what can't be one is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.errors import ConfigurationError
from gateway.ledger.secret import kept_secret


def test_it_is_made_once_and_kept(tmp_path: Path) -> None:
    ledger = tmp_path / "gateway.ledger"
    secret = kept_secret(ledger)
    file = tmp_path / "gateway.ledger.secret"
    assert len(secret) == 32 and kept_secret(ledger) == secret == file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    assert kept_secret(tmp_path / "other.ledger") != secret
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gateway.ledger.secret", "other.ledger.secret"]


def test_it_is_found_by_whatever_name_the_ledger_is_called(tmp_path: Path) -> None:
    (tmp_path / "gateway.ledger").touch()
    (tmp_path / "link").symlink_to(tmp_path / "gateway.ledger")
    assert kept_secret(tmp_path / "link") == kept_secret(tmp_path / "gateway.ledger")


def test_one_that_is_damaged_is_said_with_the_mend(tmp_path: Path) -> None:
    (tmp_path / "gateway.ledger.secret").write_bytes(b"short")
    with pytest.raises(ConfigurationError, match="damaged: it holds 5 bytes, not 32; remove it"):
        kept_secret(tmp_path / "gateway.ledger")


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="it must be a file that this user can read and write"):
        kept_secret(tmp_path / "none/gateway.ledger")


def test_what_an_interrupted_start_left_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "gateway.ledger.secret.new").write_bytes(b"half")
    assert len(kept_secret(tmp_path / "gateway.ledger")) == 32
