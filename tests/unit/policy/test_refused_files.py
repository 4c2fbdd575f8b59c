"""Each file in tests/config/bad is refused, with exactly the lines that stand at its top: `# expect: LINE: PATH: WORDS`."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.errors import ConfigurationError
from gateway.policy import load_policy
from gateway.settings import load_settings

CONFIG = Path(__file__).parents[2] / "config"
BAD = sorted((CONFIG / "bad").glob("*.toml"))


def refuse(file: Path) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        if file.name.startswith("settings-"):
            load_settings(file)
        else:
            loaded = load_policy(file)
            load_settings(CONFIG / "good/gateway.toml").check_policy(loaded)
    return str(caught.value).splitlines()


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.stem)
def test_a_bad_file_is_refused_with_file_line_path_and_the_mend(file: Path) -> None:
    expected = [line.removeprefix("# expect: ") for line in file.read_text().splitlines() if line.startswith("# expect: ")]
    here = f"{CONFIG.parents[1]}/"
    said = [line.removeprefix(f"{file}:").replace(here, "") for line in refuse(file)]
    assert expected, "a bad file says what must be printed"
    assert said == expected


def test_there_are_bad_files() -> None:
    assert len(BAD) >= 95


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.stem)
def test_a_secret_in_a_bad_file_is_not_printed(file: Path) -> None:
    said = "\n".join(refuse(file))
    assert "sk-very-secret" not in said
    assert "user:pass" not in said


def test_a_policy_is_not_judged_by_settings_alone_when_it_is_wrong_itself() -> None:
    """Files that only settings can refuse load by themselves."""
    for file in BAD:
        if file.name.startswith("fit-"):
            assert load_policy(file).policy.models


@pytest.mark.parametrize("file", sorted((CONFIG / "good").glob("*.toml")), ids=lambda file: file.stem)
def test_a_good_file_loads(file: Path) -> None:
    settings = load_settings(CONFIG / "good/gateway.toml")
    if file.name != "gateway.toml":
        settings.check_policy(load_policy(file))


def test_a_missing_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.toml: can't be read: No such file"):
        load_policy(tmp_path / "none.toml")


def test_a_file_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="is not UTF-8 text"):
        load_policy(tmp_path / "x.toml")
