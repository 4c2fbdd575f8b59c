"""The status page as a person has it: right, live, by keyboard, in both schemes, on a desk and on a phone, and with nothing from elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="[playwright] `make page` installs it")

from gateway.cli.page import Forwarder  # noqa: E402
from tests.page.looks import ask  # noqa: E402
from tests.page.scene import HOSTILE, Scene  # noqa: E402
from tests.support.waiting import eventually  # noqa: E402

KEPT: Final = Path(__file__).parents[2] / "build" / "page"
SIZES: Final = {"desk": {"width": 1360, "height": 900}, "phone": {"width": 390, "height": 844}}
SCHEMES: Final = ("light", "dark")
DRAWN: Final = [("--spent", "--track"), ("--warn", "--track"), ("--bad", "--track"), ("--known", "--paper"), ("--spent", "--paper")] + [
    (f"--{line}", "--paper") for line in "abcde"
]


@dataclass
class Looking:
    """One tab, and all that went wrong in it."""

    page: Any
    root: str
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def go(self, path: str = "", wait: str = "#runs") -> Any:
        self.page.goto(self.root + path)
        self.page.wait_for_selector(wait)
        return self.page


Opener = Callable[..., Looking]


@pytest.fixture
def look(browser: Any, page_server: Forwarder) -> Iterator[Opener]:
    """A tab. At its end: nothing was complained of, and nothing was asked of anybody else."""
    opened: list[tuple[Any, Looking]] = []

    def opener(size: str = "desk", scheme: str = "light") -> Looking:
        context = browser.new_context(viewport=SIZES[size], color_scheme=scheme)
        page = context.new_page()
        looking = Looking(page, page_server.address)
        page.on("console", lambda message: looking.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: looking.said.append(str(error)))
        page.on("dialog", lambda dialog: (looking.said.append("a dialog"), dialog.dismiss()))
        page.on("request", lambda request: looking.asked.append(request.url))
        opened.append((context, looking))
        return looking

    yield opener
    for context, looking in opened:
        context.close()
        assert looking.said == []
        assert [url for url in looking.asked if not url.startswith(page_server.address)] == []


def first_call(scene: Scene, run: str = "nightly/done") -> str:
    campaign, _, name = run.partition("/")
    return str(scene.gateway.control.get(f"/v1/campaigns/{campaign}/runs/{name}/history")["calls"][0]["call"])


def test_the_overview_shows_what_the_gateway_says(look: Opener, scene: Scene) -> None:
    page = look().go()
    label = page.locator('[data-key="nightly/quiet"] [data-key="run.requests"] .bar').get_attribute("aria-label")
    assert label == "run.requests: 1 settled, 0 reserved, 3 left of 4"
    assert "0 left of 4 ■" in page.locator('[data-key="nightly/out"] [data-key="run.requests"]').inner_text().replace("left ■ of 4", "left of 4 ■")
    days = page.locator("#days").inner_text()
    assert "gateway.day.requests" in days and "campaign.day.output_tokens" in days and re.search(r"resets in \d+ (h|min)", days)
    engines = page.locator("#engines li")
    assert engines.count() == 2 and "of 2 slots busy" in engines.nth(0).inner_text() and "serves" in engines.nth(1).inner_text()
    page.wait_for_function("() => document.querySelectorAll('#queue tbody tr').length > 0")
    assert "a slot, or its turn" in page.locator("#queue").inner_text()
    refused = page.locator("#refusals").inner_text()
    assert "run budget reached: a limit has too little left for it" in refused and "run.requests = 4 (settled 4" in refused
    campaign = page.locator('article[data-key="pilot-7"]').inner_text()
    assert "9 open of 60 planned" in campaign and "background" in campaign


def test_what_changes_is_seen_without_a_touch_and_focus_stays_where_it_was(look: Opener, scene: Scene) -> None:
    page = look().go()
    page.locator('[data-key="nightly/quiet"] a').focus()
    page.evaluate("window.before = document.activeElement")
    bar = page.locator('[data-key="nightly/quiet"] [data-key="run.requests"] .bar')
    settled = int((bar.get_attribute("aria-label") or "").split(": ")[1].split()[0])
    assert scene.call(scene.quiet, max_tokens=5).status_code == 200
    page.wait_for_function(
        "(wanted) => document.querySelector('[data-key=\"nightly/quiet\"] [data-key=\"run.requests\"] .bar').getAttribute('aria-label').includes(wanted)",
        arg=f": {settled + 1} settled",
        timeout=6_000,
    )
    assert page.evaluate("document.activeElement === window.before && window.before.isConnected")
    assert page.locator("#link").inner_text() == "live"


def test_a_filter_leaves_the_runs_that_it_names_and_keeps_what_is_typed(look: Opener) -> None:
    page = look().go()
    page.get_by_label("Only runs with").click()
    page.keyboard.type("fix-3")
    page.wait_for_function("() => document.querySelectorAll('#runs .live').length === 1")
    page.wait_for_timeout(2_500)
    assert page.evaluate("document.activeElement.value") == "fix-3" and page.locator("#runs .live").count() == 1


def test_text_of_drivers_and_agents_stays_text(look: Opener) -> None:
    looking = look()
    page = looking.go()
    assert HOSTILE in page.locator('[data-key="nightly/quiet"]').inner_text()
    page = looking.go("runs/nightly/done", "#receipt")
    assert HOSTILE in page.locator("main").inner_text()
    assert page.locator("img").count() == 0


def test_all_can_be_reached_and_followed_by_keyboard_and_focus_is_seen(look: Opener) -> None:
    page = look().go()
    page.keyboard.press("Tab")
    assert ask(page, "focus")["text"] == "Skip to content"
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        at = ask(page, "focus")
        if at["tag"] == "BODY":
            break
        assert at["seen"], at
        reached.append(at)
    assert any(at["id"] == "filter" for at in reached)
    assert {"nightly/quiet", "nightly/out"} <= {at["text"] for at in reached if at["tag"] == "A"}
    page.locator('[data-key="nightly/out"] a').focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#table")
    assert "nightly/out" in page.title()
    page.locator("#table td a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#entries")
    page.go_back()
    page.wait_for_selector("#table")


def test_a_runs_page_tells_its_calls_in_time_its_end_and_its_reconciliation(look: Opener, scene: Scene) -> None:
    told = scene.gateway.control.get("/v1/campaigns/nightly/runs/done/history")
    page = look().go("runs/nightly/done", "#receipt")
    assert page.locator("#calls svg g[data-key]").count() == page.locator("#table tbody tr").count() == len(told["calls"]) == 4
    for call in told["calls"]:
        row = page.locator(f'#table tr[data-key="{call["call"]}"]').inner_text()
        assert str(call["usage"]["output_tokens"]) in row and call["outcome"].replace("_", " ") in row and call["source"] in row
    titles = page.locator("#calls svg g title").all_text_contents()
    assert all("in all" in title for title in titles)
    budget = page.locator("#budget svg").get_attribute("aria-label")
    settled = next(one["points"][-1][1] for one in told["series"] if one["name"] == "run.output_tokens")
    assert f"run.output_tokens: {settled} of 1,000" in budget and "run.requests: 4 of 4" in budget
    assert "Conflict" in page.locator("#receipt").inner_text() and told["receipt"]["hash"] in page.locator("#receipt").inner_text()
    assert "1 unexplained" in page.locator("#reconciliation").inner_text() and "ledger only" in page.locator("#reconciliation").inner_text()
    assert "completed" in page.locator("dl.facts").first.inner_text()


def test_a_stream_is_drawn_as_waiting_prefill_and_decoding_with_the_ledgers_times(look: Opener, scene: Scene) -> None:
    def ended() -> list[Any]:
        calls = scene.gateway.control.get("/v1/campaigns/pilot-7/runs/r01/history")["calls"]
        return [call for call in calls if call["status"] == "settled" and call["outcome"] in ("completed", "length") and call["stream"]]

    eventually(ended, "a stream that has ended", timeout_s=60, every_s=0.5)
    whole = ended()[0]
    page = look().go("runs/pilot-7/r01", "#table")
    bar = page.locator(f'#calls svg g[data-key="{whole["call"]}"]')
    widths = {kind: float(bar.locator(f"rect.{kind}").get_attribute("width")) for kind in ("prefill", "decode")}
    share = whole["first_byte_ms"] / whole["took_ms"]
    assert abs(widths["prefill"] / sum(widths.values()) - share) < 0.1
    assert bar.locator("line.wait").count() == (1 if whole.get("waited_ms") else 0)


def test_a_calls_page_tells_everything_that_explain_knows(look: Opener, scene: Scene) -> None:
    call = first_call(scene)
    told = scene.gateway.control.get(f"/v1/calls/{call}")
    page = look().go(f"calls/{call}", "#entries")
    assert page.locator("#why li").all_inner_texts() == told["why"]
    entries = page.locator("#entries").inner_text()
    for entry in told["entries"]:
        for name in entry:
            assert name in ("kind", "number", "at_ms") or name.replace("_", " ") in entries
    assert page.locator("#time svg").count() == 1 and "to the first byte" in page.locator("#time").inner_text()


def test_a_refused_call_is_explained_with_the_limit_and_its_numbers_then(look: Opener, scene: Scene) -> None:
    refusal = scene.gateway.control.get("/v1/campaigns/nightly/runs/out/history")["refusals"][0]
    page = look().go(f"calls/{refusal['call']}", "#entries")
    row = page.locator("#limits tbody tr").inner_text()
    assert "refused it" in row and "run.requests" in row


@pytest.mark.parametrize("path", ["runs/nightly/none", "calls/call-none"])
def test_what_is_not_there_is_said(look: Opener, path: str) -> None:
    looking = look()
    page = looking.go(path, "[role=alert]")
    assert "no " in page.locator("[role=alert]").inner_text().lower()
    looking.said[:] = [line for line in looking.said if "404" not in line]  # the browser's own word on an answer of 404


def test_where_no_stream_is_to_be_had_it_asks_every_few_seconds(look: Opener) -> None:
    looking = look()
    looking.page.route("**/v1/events*", lambda route: route.fulfill(status=503, body="{}"))
    page = looking.go()
    page.wait_for_function("() => document.getElementById('link').textContent.startsWith('every')")
    before = sum("/v1/overview" in url for url in looking.asked)
    page.wait_for_timeout(5_500)
    assert sum("/v1/overview" in url for url in looking.asked) > before >= 1
    looking.said[:] = [line for line in looking.said if "503" not in line]


def test_a_gateway_that_does_not_answer_is_said_and_what_was_seen_stays(look: Opener) -> None:
    looking = look()
    page = looking.go()
    page.route("**/v1/**", lambda route: route.abort())
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # asks anew
    page.wait_for_function("() => /does not answer|reconnecting/.test(document.getElementById('link').textContent)", timeout=8_000)
    assert page.locator("#runs .live").count() > 0
    looking.said[:] = [line for line in looking.said if "ERR_FAILED" not in line]


def test_a_page_that_nobody_sees_asks_for_nothing(look: Opener) -> None:
    looking = look()
    page = looking.go()
    page.evaluate("Object.defineProperty(document, 'hidden', { get: () => true, configurable: true }); document.dispatchEvent(new Event('visibilitychange'))")
    assert page.locator("#link").inner_text() == "paused"
    before = len(looking.asked)
    page.wait_for_timeout(2_500)
    assert len(looking.asked) == before
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_function("() => document.getElementById('link').textContent === 'live'")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", SIZES)
def test_each_page_can_be_read_by_everybody(look: Opener, scene: Scene, size: str, scheme: str) -> None:
    looking = look(size, scheme)
    KEPT.mkdir(parents=True, exist_ok=True)
    places = {"overview": ("", "#refusals"), "run": ("runs/pilot-7/r01", "#receipt"), "done": ("runs/nightly/done", "#receipt")}
    places["call"] = (f"calls/{first_call(scene)}", "#entries")
    for name, (path, wait) in places.items():
        page = looking.go(path, wait)
        page.wait_for_timeout(600)
        page.screenshot(path=str(KEPT / f"{name}-{size}-{scheme}.png"), full_page=True)
        assert ask(page, "structure") == [], name
        assert ask(page, "contrast") == {}, name
        assert ask(page, "drawn", DRAWN) == []


def test_the_checks_would_see_what_is_wrong(look: Opener) -> None:
    page = look().go()
    page.evaluate(
        "document.querySelector('main').insertAdjacentHTML('beforeend', "
        "'<h1>two</h1><h4>jump</h4><a href=\"#\"></a><input id=filter><table><tr><td>x</table><p class=faint>faint</p>');"
        "document.querySelector('.faint').style.color = '#bbb'"
    )
    wrong = ask(page, "structure")
    assert {"there is not one h1", "A has no name", "filter has no label", "a table without a caption", "an id twice"} <= set(wrong), wrong
    assert any("faint" in text for text in ask(page, "contrast"))


def test_the_pictures_of_the_documents_are_drawn_from_what_is_there(look: Opener, scene: Scene) -> None:
    """`make page PICTURES=docs/pictures` keeps them where the documents show them."""
    folder = Path(os.environ.get("GATEWAY_PAGE_PICTURES") or KEPT)
    folder.mkdir(parents=True, exist_ok=True)
    looking = look()
    looking.page.set_viewport_size({"width": 1200, "height": 860})
    page = looking.go()
    page.get_by_label("Only runs with").fill("pilot")
    page.wait_for_function("() => document.querySelectorAll('#runs .live').length === 9 && document.querySelectorAll('#queue tbody tr').length > 0")
    page.screenshot(path=str(folder / "page.png"))
    page = looking.go("runs/pilot-7/r01", "#table")
    page.wait_for_function("() => document.querySelectorAll('#calls svg g[data-key]').length > 5", timeout=60_000)
    page.screenshot(path=str(folder / "page-run.png"), full_page=True, clip={"x": 0, "y": 0, "width": 1200, "height": 1240})
    assert all((folder / name).stat().st_size < 300_000 for name in ("page.png", "page-run.png"))
