"""Where things are: gateway.toml, its defaults and its reasons.

The rule of the room: settings say where and how much the process may use; what agents may do stands in policies. Errors are worded as a policy's are.

    declaration   the keys of gateway.toml (pydantic)
    settings      Settings: the file's tables, absolute paths, which upstream serves a model, whether a policy can be kept
    loading       file -> Settings, or every reason why not
    listeners     Unix sockets and certificates, for all that listens
    open_files    how many files a gateway needs, and the leave to
    memory        what the allocator keeps for the next call's body
    checks        what the file must agree on with itself and with each policy
    effective     every limit and rule that holds, with the place that set it
"""

from gateway.settings.declaration import Bounds, Control, Data, LedgerSettings, SettingsTable, Timeouts, UpstreamSettings
from gateway.settings.effective import Row, explain_effective
from gateway.settings.loading import load_settings, settings_from_text
from gateway.settings.settings import Settings

__all__ = [
    "Bounds",
    "Control",
    "Data",
    "LedgerSettings",
    "Row",
    "Settings",
    "SettingsTable",
    "Timeouts",
    "UpstreamSettings",
    "explain_effective",
    "load_settings",
    "settings_from_text",
]
