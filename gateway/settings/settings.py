"""The settings of a process: what gateway.toml says, with its paths made absolute and its lines remembered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gateway.errors import ConfigurationError
from gateway.policy.declaration import GatewayLimits
from gateway.policy.declared import Path as Key
from gateway.policy.loading import LoadedPolicy
from gateway.policy.positions import line_of
from gateway.settings.checks import misfits
from gateway.settings.declaration import Bounds, Capture, Control, Data, LedgerSettings, SettingsTable, UpstreamSettings


def wrong_with_secret(variable: str, value: str) -> str:
    """Why what an environment variable holds can't go out in a header; empty where it can. Says nothing of what it is."""
    if not value:
        return f"the environment variable {variable} is not set"
    if not (value.isascii() and value.isprintable()):
        return f"the environment variable {variable} holds a character that no header may hold, e.g. the end of a line; set it to the secret alone"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    file: str
    table: SettingsTable
    origins: Mapping[str, str] = field(default_factory=dict)
    """A gateway limit's name -> `file:line`."""
    lines: Mapping[Key, int] = field(default_factory=dict)
    _serving: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        serving: dict[str, tuple[str, ...]] = {}
        for name, upstream in self.table.upstreams.items():
            for model in upstream.models:
                serving[model] = (*serving.get(model, ()), name)
        object.__setattr__(self, "_serving", serving)

    @property
    def policies(self) -> Path:
        return self.table.policies

    @property
    def data(self) -> Data:
        return self.table.data

    @property
    def control(self) -> Control:
        return self.table.control

    @property
    def ledger(self) -> LedgerSettings:
        return self.table.ledger

    @property
    def capture(self) -> Capture:
        return self.table.capture

    @property
    def upstreams(self) -> Mapping[str, UpstreamSettings]:
        return self.table.upstreams

    @property
    def limits(self) -> GatewayLimits:
        return self.table.limits

    @property
    def bounds(self) -> Bounds:
        return self.table.bounds

    def where(self, key: Key) -> str:
        return f"{self.file}:{line_of(self.lines, key)}"

    def serving(self, model: str) -> tuple[str, ...]:
        """Names of the upstreams that serve a model, as the file orders them."""
        return self._serving.get(model, ())

    def check_policy(self, loaded: LoadedPolicy) -> None:
        """Raises ConfigurationError where these upstreams and limits can't keep the policy."""
        misfits(loaded, self.file, self.table).raise_if_any()

    def credential(self, upstream: str, environment: Mapping[str, str]) -> str | None:
        """The bearer token of an engine, read from the environment. Raises ConfigurationError where it is named and not set."""
        variable = self.upstreams[upstream].credential_env
        if variable is None:
            return None
        value = environment.get(variable, "").strip()
        if wrong := wrong_with_secret(variable, value):
            raise ConfigurationError(f"{self.where(('upstreams', upstream, 'credential_env'))}: upstreams.{upstream}.credential_env: {wrong}")
        return value
