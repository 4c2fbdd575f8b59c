from __future__ import annotations

from pathlib import Path

import pytest

from gateway.engines import ENGINES
from gateway.errors import ConfigurationError
from gateway.policy import load_policy, policy_from_text
from gateway.settings import explain_effective, load_settings, settings_from_text

ROOT = Path(__file__).parents[3]
SMALLEST = '[upstreams.local]\naddress = "http://127.0.0.1:8081"\nmodels = { m = "m" }\n'


def test_the_smallest_file_has_every_default() -> None:
    settings = settings_from_text(SMALLEST, "/etc/gw/gateway.toml")
    assert settings.data.listen == "127.0.0.1:8080"
    assert settings.bounds.max_event_bytes == 16 << 20
    assert settings.bounds.max_response_bytes == 32 << 20
    assert (settings.bounds.drain_seconds, settings.bounds.keepalive_after_s) == (600, 60)
    assert settings.limits.declared == ()
    assert settings.upstreams["local"].timeouts.connect_s == 5


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("")
    text = 'policies = "p"\n[control]\nsocket = "run/s.sock"\n[ledger]\npath = "/var/ledger"\n' + SMALLEST.replace("http:", "https:") + 'ca_file = "ca.pem"\n'
    (tmp_path / "gateway.toml").write_text(text)
    settings = load_settings(tmp_path / "gateway.toml")
    assert settings.policies == tmp_path / "p"
    assert settings.control.socket == tmp_path / "run/s.sock"
    assert settings.ledger.path == Path("/var/ledger")
    assert settings.upstreams["local"].ca_file == tmp_path / "ca.pem"


def test_a_credential_comes_from_the_environment() -> None:
    settings = settings_from_text(SMALLEST + 'credential_env = "TOKEN"\n', "gateway.toml")
    assert settings.credential("local", {"TOKEN": "secret\n"}) == "secret"
    with pytest.raises(ConfigurationError, match=r"gateway.toml:4: upstreams\.local\.credential_env: the environment variable TOKEN is not set"):
        settings.credential("local", {})
    assert settings_from_text(SMALLEST, "gateway.toml").credential("local", {}) is None


@pytest.mark.parametrize("secret", ["sec\nret: x", "sec\rret", "s\u00e9cret", "sec\x00ret"])
def test_a_credential_that_no_header_may_hold_is_told_and_not_shown(secret: str) -> None:
    with pytest.raises(ConfigurationError, match=r"gateway.toml:4: upstreams\.local\.credential_env: .* TOKEN holds a character that no header") as told:
        settings_from_text(SMALLEST + 'credential_env = "TOKEN"\n', "gateway.toml").credential("local", {"TOKEN": secret})
    assert "ret" not in str(told.value).replace("secret alone", "")


def test_limits_of_the_gateway_have_a_name_and_an_origin() -> None:
    settings = settings_from_text(SMALLEST + '[limits]\ntimezone = "UTC"\nday.requests = 5\nbackground.requests = 4\nmodel.m.requests = 3\n', "gateway.toml")
    assert settings.origins == {
        'gateway.model."m".requests': "gateway.toml:8",
        "gateway.background.requests": "gateway.toml:7",
        "gateway.day.requests": "gateway.toml:6",
    }


def test_a_model_may_be_served_by_several_upstreams() -> None:
    settings = settings_from_text(SMALLEST + SMALLEST.replace("local", "other"), "gateway.toml")
    assert settings.serving("m") == ("local", "other")
    assert settings.serving("x") == ()


@pytest.mark.parametrize("address", ["http://127.0.0.1:8081", "https://models.example.net", "http://[::1]:80/"])
def test_an_address_has_scheme_host_and_port(address: str) -> None:
    settings = settings_from_text(SMALLEST.replace("http://127.0.0.1:8081", address), "gateway.toml")
    assert settings.upstreams["local"].address == address.rstrip("/")


@pytest.mark.parametrize(
    "address", ["127.0.0.1:8081", "ftp://host", "http://", "http://host:99999", "http://host:0", "http://host?x=1", "http://[::1", "unix:/x"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"gateway.toml:2: upstreams\.local\.address: "):
        settings_from_text(SMALLEST.replace("http://127.0.0.1:8081", address), "gateway.toml")


@pytest.mark.parametrize("kind", sorted(ENGINES))
def test_every_engine_kind_can_be_named(kind: str) -> None:
    assert settings_from_text(f'{SMALLEST}engine = "{kind}"\n', "gateway.toml").upstreams["local"].engine == kind


def test_a_gateway_limit_on_output_needs_a_ceiling_of_calls_that_name_none() -> None:
    settings = settings_from_text(SMALLEST + 'engine = "llama.cpp"\n[limits]\noutput_tokens = 50\n', "gateway.toml")
    loaded = policy_from_text('apis = ["openai.chat"]\n[models.m]\n', "p.toml")
    with pytest.raises(ConfigurationError, match=r"p.toml:2: models: gateway\.output_tokens limits output"):
        settings.check_policy(loaded)
    settings.check_policy(policy_from_text('apis = ["openai.chat"]\n[models.m]\ndefault_output_tokens = 5\n', "p.toml"))


def test_bytes_with_a_declared_overhead_bound_a_prompt_anywhere() -> None:
    settings = settings_from_text(SMALLEST, "gateway.toml")
    text = 'apis = ["openai.chat"]\n[models.m]\ncounter = "bytes"\noverhead_tokens = 20\n[call]\nprompt_tokens = 500\n'
    settings.check_policy(policy_from_text(text, "p.toml"))
    with pytest.raises(ConfigurationError, match="set overhead_tokens or a counter"):
        settings.check_policy(policy_from_text(text.replace("overhead_tokens = 20\n", ""), "p.toml"))


def test_what_holds_in_the_end_is_shown_with_the_place_that_set_it() -> None:
    settings = load_settings(ROOT / "gateway.example.toml")
    rows = {row.name: row for row in explain_effective(load_policy(ROOT / "policies/pilot.toml"), settings)}
    assert rows["campaign.background.day.requests"].value == "30 (Asia/Shanghai)"
    assert rows["campaign.background.day.requests"].origin.endswith("policies/pilot.toml:25")
    assert rows["gateway.day.requests"].origin.startswith(str(ROOT / "gateway.example.toml:"))
    assert rows["admission.queue_seconds"][1:] == ("120", "default")
    assert rows["run.foreground.requests"].value == "50"


def test_a_limit_of_a_lane_that_may_not_use_a_model_does_not_need_its_prompt() -> None:
    settings = settings_from_text(SMALLEST.replace('"m" }', '"m", n = "n" }'), "gateway.toml")
    text = 'apis = ["openai.chat"]\n[models]\nm = { counter = "bytes" }\nn = { counter = "tiktoken:o200k_base" }\n'
    text += '[lanes.foreground]\nmodels = ["MODEL"]\n[lanes.background]\n[run.foreground]\ninput_tokens = 50\n'
    settings.check_policy(policy_from_text(text.replace("MODEL", "n"), "p.toml"))
    with pytest.raises(ConfigurationError, match=r"run\.foreground\.input_tokens needs the prompt's size"):
        settings.check_policy(policy_from_text(text.replace("MODEL", "m"), "p.toml"))


@pytest.mark.parametrize("listen", ["localhost:0", "[::1]:8080", "0.0.0.0:65535"])
def test_an_address_to_listen_on_has_a_host_and_a_port(listen: str) -> None:
    assert settings_from_text(f'[data]\nlisten = "{listen}"\n{SMALLEST}', "gateway.toml").data.listen == listen


@pytest.mark.parametrize("listen", [":8080", "8080", "localhost", "localhost:65536", "http://localhost:80"])
def test_what_can_not_be_listened_on_is_refused(listen: str) -> None:
    with pytest.raises(ConfigurationError, match=r"gateway.toml:2: data\.listen: "):
        settings_from_text(f'[data]\nlisten = "{listen}"\n{SMALLEST}', "gateway.toml")
