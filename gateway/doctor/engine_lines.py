"""Judges what one engine showed, but for what the policies want of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.doctor.line import Line, fail, ok, warn
from gateway.doctor.seen import CAP, EngineSeen, Left, Short
from gateway.engines import ENGINES
from gateway.errors import EngineFailure
from gateway.settings.declaration import UpstreamSettings
from gateway.upstream.at_work import Found
from gateway.upstream.identity import missing_models
from gateway.upstream.marks import Said
from gateway.upstream.probe import Probed

NAMED_MAX = 5
"""How many names a line lists."""


def engine_lines(name: str, settings: UpstreamSettings, seen: EngineSeen, *, all_share: bool, credential: bool) -> Iterator[Line]:
    """`all_share`: every policy says that all may share a prompt cache. `credential`: one was presented."""
    probed = seen.probed
    if probed is None:
        yield _unreachable(name, settings, seen.failure or EngineFailure("unreachable"))
        return
    yield ok("reachability", name, f"{settings.address} answers")
    yield _credential(name, settings, probed, seen.short, credential)
    yield _health(name, settings, probed)
    if probed.shut:
        return
    yield _identity(name, settings, probed)
    yield _cache(name, settings, all_share)
    if seen.short is None:
        why = "no model of it that is declared is listed" if not seen.model else f"an engine of kind {settings.engine} has no chat here"
        yield warn("call", name, f"no call was tried: {why}", "mend what is above, then ask again")
        return
    yield from _short(name, seen.short)
    if seen.left is not None:
        yield _left(name, settings, seen.left)


def _unreachable(name: str, settings: UpstreamSettings, failure: EngineFailure) -> Line:
    mend = "start the engine, or correct host and port in address"
    if "Certificate" in str(failure) or "SSL" in str(failure):
        mend = "name the authority that signed it in ca_file, or write http:// where the server speaks no TLS"
    elif failure.kind in ("died", "closed"):
        mend = "write https:// where the server speaks TLS, or correct the port: what answers there speaks no HTTP"
    elif failure.kind == "timeout":
        mend = "look whether a firewall stands between, or whether the server is overloaded"
    return fail("reachability", name, f"{settings.address} does not answer: {failure}; nothing else was asked of it", mend)


def _credential(name: str, settings: UpstreamSettings, probed: Probed, short: Short | None, presented: bool) -> Line:
    closed = list(probed.shut)
    if short is not None and short.status in (401, 403):
        closed.append("a call")
    if not closed:
        return ok("credential", name, "the credential is accepted" if presented else "none is declared, and none is wanted")
    wants = "another credential" if presented else "a credential"
    where = f"the variable {settings.credential_env} holds" if settings.credential_env else "an environment variable that credential_env names holds"
    return fail("credential", name, f"{', '.join(closed[:NAMED_MAX])} wants {wants}", f"see to it that {where} the engine's token")


def _health(name: str, settings: UpstreamSettings, probed: Probed) -> Line:
    path = settings.health_path or ENGINES[settings.engine].health_path
    said = probed.health.get(path, Said())
    if said.good:
        return ok("health_path", name, f"{path} answers 200")
    answers = f"{path} {'does not answer' if said.failure is not None else f'answers {said.status}'}"
    if probed.health_path:
        return fail("health_path", name, f"{answers}; {probed.health_path} answers 200", f'set health_path = "{probed.health_path}"')
    if said.status == 503:
        return fail("health_path", name, f"{answers}: it is not ready", "wait until its model is loaded, then ask again")
    return fail("health_path", name, f"{answers}, and no other path that is known answers well", "set health_path to the path that the engine's manual names")


def _identity(name: str, settings: UpstreamSettings, probed: Probed) -> Line:
    listed = probed.identity.models
    if not probed.listing.good:
        return fail("identity", name, f"the list of models answers {probed.listing.status}", "correct host and port if this is no model server")
    if not listed:
        return warn("identity", name, "it lists no model: which one it serves can't be seen", "look at the engine whether it serves what [models] declares")
    missing = missing_models(settings.models.values(), probed.identity)
    if missing:
        names = ", ".join(listed[:NAMED_MAX]) + (", …" if len(listed) > NAMED_MAX else "")
        return fail(
            "identity", name, f"it does not list {', '.join(missing[:NAMED_MAX])}; it lists {names}", f"correct [upstreams.{name}.models], or load the model"
        )
    kind = probed.recognised.product.kind
    if kind != settings.engine and kind != "generic":
        seen = f"it serves what is declared, and looks like {probed.recognised.product.name} ({probed.recognised.evidence})"
        return warn("identity", name, f"{seen}, not like {settings.engine}", f'set engine = "{kind}"')
    version = f" {probed.recognised.version}" if probed.recognised.version else ""
    return ok("identity", name, f"{probed.recognised.product.name}{version} serves {', '.join(list(settings.models.values())[:NAMED_MAX])}")


def _cache(name: str, settings: UpstreamSettings, all_share: bool) -> Line:
    engine = ENGINES[settings.engine]
    if engine.salted:
        return ok("cache_separation", name, engine.cache_sharing)
    if all_share:
        return ok("cache_separation", name, 'one prompt cache for all, as cache_sharing = "all" of every policy says')
    return warn(
        "cache_separation",
        name,
        engine.cache_sharing,
        'give runs that must not know of each other engines of their own, or say cache_sharing = "all" in the policies where it does not matter',
    )


def _short(name: str, short: Short) -> Iterator[Line]:
    if short.failure is not None or short.reading is None:
        yield fail("call", name, f"a call of {CAP} tokens failed: {short.failure}", "ask the engine's own log")
        return
    if short.status in (401, 403):
        return
    if short.status != 200:
        said = f": {short.said[:120]}" if short.said else ""
        yield fail(
            "call", name, f"a call of {CAP} tokens was answered {short.status}{said}", "ask the engine's own log; a model that makes embeddings takes no chat"
        )
        return
    usage = short.reading.usage
    reported = usage.output_tokens
    if reported is None or usage.input_tokens is None:
        yield warn(
            "usage_in_streams", name, "its streams report no usage: what they deliver is counted here, a lower bound", "use a release that reports usage"
        )
    else:
        yield ok("usage_in_streams", name, f"a stream reports {usage.input_tokens} prompt and {reported} output tokens")
    made = reported if reported is not None else short.pieces
    unit = "tokens" if reported is not None else "pieces"
    if made > CAP:
        yield fail(
            "cap_honoured",
            name,
            f"asked for {CAP} tokens it made {made} {unit}: every call is cut here instead, and the engine may work on",
            "correct engine, so that the cap has the name that this server reads, or use another release of it",
        )
    else:
        yield ok("cap_honoured", name, f"asked for {CAP} tokens it made {made}{'' if unit == 'tokens' else ' pieces'}")


def _left(name: str, settings: UpstreamSettings, left: Left) -> Line:
    stops = ENGINES[settings.engine].stops
    match left.found:
        case Found.STOPPED:
            return ok("cancellation", name, f"a stream that was left had stopped 3 s later ({left.why})")
        case Found.AT_WORK if not left.lags:
            return fail(
                "cancellation",
                name,
                f"3 s after its client left it still works on a stream ({left.why}): what is cut here goes on costing there",
                "let no proxy stand between gateway and engine that keeps the connection, or use another release of it",
            )
        case Found.AT_WORK:
            return warn(
                "cancellation", name, f"it may still work on a stream that was left ({left.why}), but its number lags", "look at the engine's own metrics"
            )
        case Found.ONE_OF_SEVERAL:
            return warn("cancellation", name, f"it can't be told whether a stream that was left stopped ({left.why})", "ask again while nobody uses it")
        case _:
            known = f"; what is known: {stops}" if stops else ""
            return warn("cancellation", name, f"not seen: {left.why}{known}", "watch the engine's own load after a run was cut")
