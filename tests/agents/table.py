"""The table of agents: printed, and put into docs/agents.md between its markers, with each agent's settings as they were tried."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path

from tests.agents.setups import SETUPS, Setup
from tests.agents.trial import Trial

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
CUTS = {"cut-text": "text", "cut-reasoning": "reasoning", "cut-tool-call": "tool call", "cut-whole": "an answer in one piece"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What the table shows of a trial."""

    setup: str
    scenario: str
    calls: int
    finished: bool
    exit: int
    refused: int
    ends: str
    normal: bool
    outcome: str
    """Of the last call that was sent."""
    tokens: tuple[int, int]
    """In and out, of the ledger's calls that ended well."""
    equal: bool
    """The engine's log says the same, call by call."""
    seconds: float

    @classmethod
    def of(cls, trial: Trial) -> Result:
        return cls(
            setup=trial.setup.name,
            scenario=trial.scenario.name,
            calls=len(trial.calls),
            finished=trial.wrote,
            exit=trial.ran.exit,
            refused=trial.refused,
            ends=trial.ending.words,
            normal=trial.ending.normal,
            outcome=trial.outcomes[-1] if trial.outcomes else "",
            tokens=trial.tokens,
            equal=not trial.unequal,
            seconds=trial.seconds,
        )

    def store(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.setup}.{self.scenario}.json").write_text(json.dumps({name: getattr(self, name) for name in self.__slots__}))


def load(folder: Path) -> dict[tuple[str, str], Result]:
    found = [Result(**json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]
    return {(one.setup, one.scenario): one for one in found}


def overview(results: dict[tuple[str, str], Result]) -> list[str]:
    lines = [
        "| agent | version | format | calls sent | finished | tokens in, out | equal | refused after the cap / exit |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for setup in SETUPS:
        ok, cap = results.get((setup.name, "ok")), results.get((setup.name, "cap"))
        if ok is None or cap is None:
            continue
        tokens = f"{ok.tokens[0]:,}, {ok.tokens[1]:,}"
        row = (setup.title, setup.version, setup.dialect, ok.calls, _yes(ok.finished), tokens, _yes(ok.equal), f"{cap.refused} / {cap.exit}")
        lines.append(f"| {' | '.join(map(str, row))} |")
    return lines


def cuts(results: dict[tuple[str, str], Result]) -> list[str]:
    lines = ["| agent, format | cut in | refused calls after it | exit | its own record ends | ledger |", "|---|---|---|---|---|---|"]
    for setup in SETUPS:
        for scenario, where in CUTS.items():
            if one := results.get((setup.name, scenario)):
                mark = " (reads as a normal end)" if one.normal else ""
                lines.append(f"| {setup.title}, {setup.dialect} | {where} | {one.refused} | {one.exit} | {one.ends}{mark} | `{one.outcome}` |")
    return lines


def settings(setup: Setup) -> list[str]:
    def told(text: str) -> str:
        return text.replace("@GATEWAY@", "http://gateway:8080").replace("@KEY@", "$KEY")

    lines = [f"### {setup.title} {setup.version}, `{setup.dialect}`", ""]
    for name, text in setup.files.items():
        lines += [f"`~/{name}`:", "", f"```{Path(name).suffix.lstrip('.')}", told(text).rstrip("\n"), "```", ""]
    lines += ["```sh", *(f"export {name}={_quoted(told(value))}" for name, value in setup.env.items()), setup.shown, "```", ""]
    return [*lines, *([setup.note, ""] if setup.note else [])]


def _yes(so: bool) -> str:
    return "yes" if so else "no"


def _quoted(value: str) -> str:
    return f'"{value}"' if "$" in value else value


def written(results: dict[tuple[str, str], Result], text: str) -> str:
    """The page with its tables: only what stands between `<!-- NAME -->` and `<!-- /NAME -->` is replaced."""
    parts: dict[str, list[str]] = {"overview": overview(results), "cuts": cuts(results), "settings": [line for setup in SETUPS for line in settings(setup)]}
    for name, lines in parts.items():
        first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, _, rest = text.partition(first)
        _, _, after = rest.partition(last)
        body = "\n".join(lines).rstrip("\n")
        text = f"{before}{first}\n{body}\n{last}{after}"
    return text


def main(folder: Path, *, renew: bool) -> None:
    """Prints; and renews the page, or says in what it differs."""
    results = load(folder)
    print("\n".join([*overview(results), "", *cuts(results)]))
    missing = {setup.name for setup in SETUPS} - {name for name, _ in results}
    if missing:
        print(f"\n{PAGE.name} is left as it is: nothing was tried of {', '.join(sorted(missing))}")
        return
    before = PAGE.read_text()
    after = written(results, before)
    if renew:
        PAGE.write_text(after)
    print(f"\n{PAGE.name} says {'the same' if before == after else 'so now' if renew else 'otherwise; KEEP=1 renews it'}")
    if not renew:
        print("\n".join(difflib.unified_diff(before.splitlines(), after.splitlines(), "the page", "this run", lineterm="", n=0)))
