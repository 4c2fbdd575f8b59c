"""How many files a gateway may have open at once: the soft limit of its process is raised to what its bounds need, as far as the hard one lets it."""

from __future__ import annotations

import resource
from typing import Final

from gateway.settings.declaration import SettingsTable

SPARE: Final = 128
"""The ledger, listeners, logs, drivers on the control socket, and agents that are told that they are too many."""


def files_needed(table: SettingsTable) -> int:
    """With every connection of agents open and every slot of every engine in use."""
    engines = sum(upstream.slots + table.bounds.helper_calls + 1 for upstream in table.upstreams.values())
    return table.bounds.max_connections + engines + SPARE


def allow_files(needed: int) -> int:
    """Gives the soft limit that holds from now on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return soft
    wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
