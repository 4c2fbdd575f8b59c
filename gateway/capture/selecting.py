"""Which bodies belong to which calls: digests as they stand in reservations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from gateway.accounting.tally import Content
from gateway.capture.store import BodyStore

ROLES = {"received": "body_sha256", "sent": "sent_sha256"}
"""What a body was in its call, and under which name its digest stands on record. The answer's is noted beside the bodies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBodies:
    call: str
    campaign: str
    run: str
    at_ms: int
    digests: Mapping[str, str]
    """By role; what is not on record is absent."""


def bodies_of(contents: Iterable[Content], store: BodyStore) -> Iterator[CallBodies]:
    """From reservations; all else is passed over."""
    for content in contents:
        if content["kind"] != "reserve":
            continue
        call = cast(str, content["call"])
        details = cast("dict[str, str]", content.get("details", {}))
        digests = {role: details[name] for role, name in ROLES.items() if name in details}
        if answer := store.answer_of(call):
            digests["answer"] = answer
        names = {name: cast(str, content[name]) for name in ("campaign", "run")}
        yield CallBodies(call=call, at_ms=cast(int, content["at_ms"]), digests=digests, **names)
