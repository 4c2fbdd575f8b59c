"""What gateway.toml must agree on with itself and with the policies that are served under it."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.accounting.quantity import Quantity
from gateway.engines import ENGINES
from gateway.engines.engine import Engine
from gateway.policy.checks import check_gateway_limits, check_never_binding, check_output_capped
from gateway.policy.declaration import Policy
from gateway.policy.declared import CONTEXT_TOKENS, PROMPT_TOKENS, Declared
from gateway.policy.diagnose import Report
from gateway.policy.loading import LoadedPolicy
from gateway.policy.nearest import close
from gateway.settings.declaration import SettingsTable

_NEEDS_PROMPT = (PROMPT_TOKENS, CONTEXT_TOKENS, Quantity.INPUT_TOKENS, Quantity.TOTAL_TOKENS)


def check_settings(table: SettingsTable, report: Report) -> None:
    check_gateway_limits(table.limits, report)
    _check_listeners(table, report)
    for name, upstream in table.upstreams.items():
        if upstream.ca_file is not None and not upstream.ca_file.is_file():
            report.add(("upstreams", name, "ca_file"), f"{upstream.ca_file} is no file")
        if upstream.ca_file is not None and upstream.address.startswith("http:"):
            report.add(("upstreams", name, "ca_file"), "an http address has no certificate; write https in address, or leave ca_file out")


def _check_listeners(table: SettingsTable, report: Report) -> None:
    data, control = table.data, table.control
    if data.listen == "none" and data.socket is None:
        report.add(("data", "listen"), "agents could come in nowhere; name a socket in data.socket, or an address here")
    if data.socket is not None and data.socket == control.socket:
        report.add(("data", "socket"), "is control.socket too: agents and drivers never share one; give it a path of its own")
    if control.listen is not None and control.token_env is None:
        report.add(("control", "listen"), "whoever reaches it may spend; name the variable that holds its token in control.token_env")
    if control.token_env is not None and control.listen is None:
        report.add(("control", "token_env"), "there is nothing to present it to; name an address in control.listen, or leave it out")
    for name, table_, listens in (("data", data, data.listen != "none"), ("control", control, control.listen is not None)):
        given = {key: path for key in ("tls_cert", "tls_key") if (path := getattr(table_, key)) is not None}
        for key, path in given.items():
            if len(given) == 1:
                report.add((name, key), f"a certificate and its key go together; also name {name}.{'tls_key' if key == 'tls_cert' else 'tls_cert'}")
            elif not listens:
                report.add((name, key), f"there is nothing that speaks TLS; name an address in {name}.listen")
            elif not path.is_file():
                report.add((name, key), f"{path} is no file")


def misfits(loaded: LoadedPolicy, settings_file: str, table: SettingsTable) -> Report:
    """Everything in a policy that these settings can't keep, at its line in the policy."""
    report = Report(loaded.file or loaded.name, loaded.lines)
    policy = loaded.policy
    served = sorted({model for upstream in table.upstreams.values() for model in upstream.models})
    for model in policy.models:
        if model not in served:
            likely = close(model, served)
            meant = f"; did you mean {likely}?" if likely else ""
            report.add(("models", model), f"no upstream in {settings_file} serves it (served: {', '.join(served)}){meant}")
        else:
            _check_counter(policy, model, table, report)
    check_never_binding(policy.declared, table.limits.declared, report)
    _check_gateway_tokens(policy, table, report)
    return report


def _check_counter(policy: Policy, model: str, table: SettingsTable, report: Report) -> None:
    """A prompt must be countable, or at least boundable, where a limit needs it."""
    serving = {name: ENGINES[upstream.engine] for name, upstream in table.upstreams.items() if model in upstream.models}
    declared = policy.models[model]
    if declared.counter == "engine":
        _check_engine_counts(policy, model, serving, report)
    silent = next((name for name, engine in serving.items() if not engine.counter), "")
    if silent and declared.counter == "bytes" and declared.overhead_tokens is None:
        limits = (*policy.declared, *table.limits.declared)
        needing = [item.name for item in limits if item.quantity in _NEEDS_PROMPT and item.model in ("", model) and _may_use(policy, item, model)]
        if needing:
            asked = f"upstream {silent} (engine = {serving[silent].kind}) can't be asked for it"
            report.add(("models", model), f"{needing[0]} needs the prompt's size, and {asked}: set overhead_tokens or a counter")


def _check_engine_counts(policy: Policy, model: str, serving: Mapping[str, Engine], report: Report) -> None:
    """`counter = "engine"` promises an exact count: each engine that serves the model must be able to give it, in each of the policy's formats."""
    where, instead = ("models", model, "counter"), 'write counter = "tiktoken:o200k_base", or "bytes" with overhead_tokens'
    for name, engine in serving.items():
        uncounted = [api for api in policy.apis if api in engine.paths and api not in engine.counts]
        if not engine.counter:
            report.add(where, f"upstream {name} (engine = {engine.kind}) has no tokenizer to ask; {instead}")
            return
        if uncounted:
            apis, which = ", ".join(uncounted), "this format" if len(uncounted) == 1 else "these formats"
            report.add(where, f"upstream {name} (engine = {engine.kind}) can't count prompts of {apis}; {instead}, or take {which} out of apis")
            return


def _may_use(policy: Policy, item: Declared, model: str) -> bool:
    return not item.lane or model in policy.models_of(item.lane)


def _check_gateway_tokens(policy: Policy, table: SettingsTable, report: Report) -> None:
    """A limit of the gateway on output tokens concerns this policy's calls too: reported where the policy names its models."""
    found = Report("", {})
    check_output_capped(policy, table.limits.declared, found)
    for problem in found.problems:
        report.add(("models",), f"gateway.{'.'.join(problem.path[1:])} limits output, and {problem.what}")
