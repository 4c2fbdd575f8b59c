"""What a run may call, and how much of it: one TOML file, frozen into a canonical form when a campaign opens.

The rule of the room: a policy that loads can be kept exactly as it reads; everything else is an error with file, line and the right name.
A limit's name is its path in TOML. Nothing here reads a clock.

    declaration   the keys of a policy, their defaults and their documentation (pydantic)
    limit_tables  the limits among them, table by table
    table         what every table of a file is
    body_checks   what may stand in [body], and where the rest belongs
    body_rules    fields of a request that the policy sets, proposes or refuses, and the body afterwards
    guard_rules   what the guard lets through or drops
    declared      its limits as a flat list, narrow to broad, each with its name
    reserved      words that a lane can't be named
    days          calendar days in a named zone, of 23, 24 and 25 hours
    resolve       the limits over one call or one opening at a moment; caps of one call; effective limits and their hash
    canonical     the one form that is hashed, stored and served from
    loading       file -> LoadedPolicy, or every reason why not
    diagnose      unknown keys and wrong values, as lines that a person can act on
    nearest       which right name was meant, and where it belongs
    values        words for a value that does not fit its key
    checks        names that must be declared, caps that can never bind, outputs without a ceiling
    remembered    limits and caps that were resolved before, for the calls that follow
    shape         the models as a tree that can be walked
    positions     on which line each key stands
"""

from gateway.policy.canonical import canonical, canonical_json, parse_canonical, policy_hash
from gateway.policy.declaration import APIS, COUNTERS, DEFAULT_LANE, GatewayLimits, LanePolicy, ModelPolicy, Policy
from gateway.policy.declared import Declared
from gateway.policy.loading import LoadedPolicy, load_policy, policy_from_text
from gateway.policy.resolve import attempts_limit, call_caps, effective, limits_hash, resolve_limits, run_limits, span_limit, wall_limits

__all__ = [
    "APIS",
    "COUNTERS",
    "DEFAULT_LANE",
    "Declared",
    "GatewayLimits",
    "LanePolicy",
    "LoadedPolicy",
    "ModelPolicy",
    "Policy",
    "attempts_limit",
    "call_caps",
    "canonical",
    "canonical_json",
    "effective",
    "limits_hash",
    "load_policy",
    "parse_canonical",
    "policy_from_text",
    "policy_hash",
    "resolve_limits",
    "run_limits",
    "span_limit",
    "wall_limits",
]
