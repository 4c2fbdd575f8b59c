"""The documents and the code name the same things, and every link leads somewhere."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import pytest

from gateway.accounting.quantity import Quantity
from gateway.accounting.settling import Terms
from gateway.accounting.usage import Outcome, Source
from gateway.cli.root import root
from gateway.control.bodies import ResultsBody
from gateway.dialects.barred import BARRED
from gateway.dialects.dialect import Wording
from gateway.metrics.metrics import Metrics
from gateway.policy.declared import ATTEMPTS, CONTEXT_TOKENS, PROMPT_TOKENS, SPAN_SECONDS, WALL_SECONDS
from gateway.proxy import refused, refusing
from gateway.proxy.answer_headers import LEFT_HEADERS
from gateway.proxy.engine_told import MODEL_MISMATCH
from tests.support.storeys import BUDGETS_S

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")])
README = (ROOT / "README.md").read_text()
CONTRACT = (ROOT / "docs/budget-contract.md").read_text()
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text()
GUARD = (ROOT / "docs/guard.md").read_text()
METRICS = (ROOT / "docs/metrics.md").read_text()
SPEAKING = [path for room in ("proxy", "dialects", "upstream") for path in sorted((ROOT / "gateway" / room).glob("*.py"))]
"""The modules in which an agent's answer is made."""


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def first_cells(text: str, head: str) -> list[str]:
    """Every word in backticks in the first column of the table whose first head is `head`."""
    table = re.search(rf"^\| {head} \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert table, head
    return [word for row in table[1].splitlines() for word in re.findall(r"`([^`]+)`", row.split("|")[1])]


# -- the budget contract


def test_each_outcome_stands_in_the_contract_once() -> None:
    assert sorted(first_cells(CONTRACT, "outcome")) == sorted(Outcome)


def test_each_source_stands_in_the_contract_and_no_other() -> None:
    assert set(first_cells(CONTRACT, "source")) == set(Source)


def test_each_code_stands_in_the_contract_once() -> None:
    assert sorted(first_cells(CONTRACT, "code")) == sorted(codes())


def codes() -> set[str]:
    """From the tables of words, from every wording that is made, and from what is raised."""
    tables = {*refusing.FINAL_WORDS, *refusing.PASSING_WORDS, *refusing.UNAVAILABLE_WORDS}
    made = {value.code for module in (refusing, refused) for value in vars(module).values() if isinstance(value, Wording)}
    return tables | made | {code for path in SPEAKING for code in raised(ast.parse(path.read_text()))}


def raised(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func.id if isinstance(node.func, ast.Name) else ""
            if function in ("BodyError", "BodyRefused") and node.args:
                yield from texts(node.args[0])
            if function in ("Refusal", "Wording"):
                yield from texts(next((keyword.value for keyword in node.keywords if keyword.arg == "code"), None))
        if isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == "code" for target in node.targets):
            yield from texts(node.value)


def texts(node: ast.AST | None) -> Iterator[str]:
    """Of a text, or of one where it depends."""
    if isinstance(node, ast.IfExp):
        yield from texts(node.body)
        yield from texts(node.orelse)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def test_what_is_raised_is_found_by_reading_the_code() -> None:
    source = """
raise BodyError("one", "text")
raise Refused(Refusal(code="two", final=True))
code = "three" if stop else "four"
other = "five"
"""
    assert set(raised(ast.parse(source))) == {"one", "two", "three", "four"}


def test_each_header_stands_in_the_contract_and_no_other() -> None:
    written = {text for path in SPEAKING for text in strings(path) if re.fullmatch(r"x-gateway-[a-z-]*[a-z]", text)}
    assert set(LEFT_HEADERS.values()) <= written
    assert {name for name in first_cells(CONTRACT, "header") if name.startswith("x-gateway-")} == written
    assert set(re.findall(r"x-gateway-[a-z-]*[a-z]", CONTRACT)) == written


def test_ids_and_retry_headers_stand_in_the_contract() -> None:
    assert {"x-request-id", "request-id", "x-should-retry", "retry-after"} <= set(first_cells(CONTRACT, "header"))


def strings(path: Path) -> Iterator[str]:
    return (node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant) and isinstance(node.value, str))


def test_each_quantity_stands_among_the_limits_and_says_how_hard_it_is() -> None:
    limited = {*Quantity, PROMPT_TOKENS, CONTEXT_TOKENS, WALL_SECONDS, SPAN_SECONDS, ATTEMPTS}
    limits, hardness = (re.search(rf"^## {head}\n.*?(?=^## )", CONTRACT, re.MULTILINE | re.DOTALL) for head in ("Limits", "How hard a limit is"))
    assert limits and hardness
    assert [name for name in limited if f"`{name}`" not in limits[0]] == []
    assert set(first_cells(hardness[0], "quantity")) == limited


def test_each_turn_end_that_can_contradict_stands_in_the_contract() -> None:
    ends = {word for option in ResultsBody.model_json_schema()["properties"]["turn_end"]["anyOf"] for word in option.get("enum", ())}
    assert set(first_cells(CONTRACT, "declared `--turn-end`")) == ends - {"aborted", "failed"}


def test_each_flag_of_a_settlement_stands_in_the_contract() -> None:
    assert "flags" in Terms.__dataclass_fields__
    added = re.findall(r"flags\.append\(\"(\w+)\"\)", (ROOT / "gateway/accounting/settling.py").read_text())
    assert added and set(first_cells(CONTRACT, "flag of a settlement")) == {*added, MODEL_MISMATCH}


# -- the guard


def test_each_thing_that_the_guard_refuses_stands_in_its_table_with_its_fields() -> None:
    rows = {row[0].strip("` "): row for row in (line.strip("| ").split(" | ") for line in GUARD.splitlines() if line.startswith("| `"))}
    assert list(rows) == list(BARRED)
    for name, thing in BARRED.items():
        _, what, where, allowed, stripped = rows[name]
        assert (what, allowed, stripped) == (thing.what, f"no: {thing.never}" if thing.never else "yes", f"no: {thing.stays}" if thing.stays else "yes")
        assert {*thing.fields} <= set(re.findall(r"`([^`]+)`", where)), name
        assert all(f"`{beginning}…`" in where for beginning in thing.tools), name


# -- the architecture


def test_the_floors_are_those_that_are_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    block = re.search(r"^## Rooms and floors\n.*?^```text\n(.*?)^```", ARCHITECTURE, re.MULTILINE | re.DOTALL)
    assert block
    assert [re.split(r"  +", line)[0] for line in block[1].splitlines()] == layers


def test_every_room_is_named_in_the_architecture() -> None:
    rooms = [f"{path.parent.name}/" for path in (ROOT / "gateway").glob("*/__init__.py")]
    files = [path.name for path in (ROOT / "gateway").glob("*.py") if not path.name.startswith("__")]
    assert [name for name in rooms if not re.search(rf"\b{name[:-1]}\b", ARCHITECTURE)] == []
    assert [name for name in files if f"`{name}`" not in ARCHITECTURE] == []


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\b((?:accounting|ledger|dialects|engines|tokenizers|upstream|proxy)/[a-z_]+\.py)", ARCHITECTURE))))
def test_a_file_that_the_architecture_names_is_there(path: str) -> None:
    assert (ROOT / "gateway" / path).is_file()


def test_the_budgets_of_the_tests_are_those_that_end_a_session() -> None:
    told = {storey: float(seconds.replace(",", "")) for storey, seconds in re.findall(r"^\| `tests/(\w+)` \|.*\| ([\d,]+) s \|$", ARCHITECTURE, re.MULTILINE)}
    assert told == BUDGETS_S


# -- metrics


def test_each_metric_stands_in_its_table_with_type_and_labels_and_no_other() -> None:
    rows = re.findall(r"^\| `((?:gateway|gen_ai)_\w+)` \| (\w+) \| ([^|]*)\|", METRICS, re.MULTILINE)
    shown = {name: (kind, re.findall(r"`(\w+)`", labels)) for name, kind, labels in rows}
    suffixes = {"counter": "_total", "info": "_info"}
    made = {each.name + suffixes.get(each.kind, ""): (each.kind, list(each.label_names)) for each in Metrics().families}
    assert len(made) > 40
    assert shown == made


# -- all of them


def test_every_document_is_linked_from_readme() -> None:
    assert [named(path) for path in DOCUMENTS if path.name != "README.md" and f"]({named(path)}" not in README] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    assert [link for link in links(document.read_text()) if not leads_somewhere(document, link)] == []


def links(text: str) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", without_blocks(text)) if not re.match(r"https?:", link)]


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def leads_somewhere(document: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = document.parent / path if path else document
    return target.exists() and (not anchor or anchor in anchors(target.read_text()))


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", without_blocks(text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_a_link_that_leads_nowhere_would_be_seen() -> None:
    here = ROOT / "docs" / "operating.md"
    assert leads_somewhere(here, "configuration.md") and leads_somewhere(here, "#backup")
    assert not leads_somewhere(here, "gone.md") and not leads_somewhere(here, "configuration.md#gone")


def commands_in(text: str) -> list[str]:
    """Every `gateway …` that a document writes as code, up to what a shell would end a command at."""
    lines = re.findall(r"^(?: {4})?(?:\$ )?(gateway [a-z].*)$", text, re.MULTILINE)
    return [re.split(r"\s*(?:[|>;#]|  )", line)[0] for line in [*lines, *re.findall(r"`(gateway [a-z][^`]*)`", text)]]


@pytest.mark.parametrize("document", [path for path in DOCUMENTS if path.name != "cli.md"], ids=named)
def test_every_command_that_a_document_names_is_one(document: Path) -> None:
    assert [command for command in commands_in(document.read_text()) if (problem := wrong_with(command.split()[1:])) and problem] == []


def wrong_with(words: list[str], command: click.Command = root) -> str:
    if isinstance(command, click.Group):
        if not words or words[0] not in command.commands:
            return "" if not words or words[0].startswith("-") else f"no command {words[0]}"
        return wrong_with(words[1:], command.commands[words[0]])
    options = set(_flat(parameter.opts for parameter in command.params))
    own = words[: words.index("--")] if "--" in words else words
    return next((f"no option {word}" for word in own if word.startswith("--") and word.partition("=")[0] not in options), "")


def _flat(lists: Iterable[Iterable[str]]) -> Iterator[str]:
    return (one for inner in lists for one in inner)


def test_a_command_that_is_none_would_be_seen() -> None:
    assert wrong_with(["run", "close", "r1", "--exit", "0"]) == ""
    assert wrong_with(["run", "shut"]) and wrong_with(["usage", "--buy", "run"])


def test_every_make_target_that_a_document_names_is_one() -> None:
    lines = re.findall(r"^([.a-z/ -]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    targets = {target for line in lines for target in line.split()}
    found = {word for path in DOCUMENTS for word in re.findall(r"(?:`|^ {4}|^)make ([.a-z][.a-z/-]*)", path.read_text(), re.MULTILINE)}
    assert {"run", "test", ".venv/run"} <= found <= targets
