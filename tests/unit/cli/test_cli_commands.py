"""The commands against a real control plane on a real socket."""

from __future__ import annotations

import json

from gateway.accounting.usage import Outcome, Source, Usage
from tests.unit.cli.conftest import Gateway, House


def opened(gateway: Gateway, run: str = "r1", *more: str, campaign: str = "c1") -> None:
    if campaign not in gateway("campaign", "list").stdout:
        assert gateway("campaign", "open", campaign, "--policy", "pilot").exit_code == 0
    assert gateway("run", "open", f"{campaign}/{run}", *more).exit_code == 0


def test_opening_a_campaign_says_what_to_do_next(gateway: Gateway) -> None:
    done = gateway("campaign", "open", "c1", "--policy", "pilot", "--planned", "12")
    assert done.exit_code == 0, done.stderr
    assert "Campaign c1 is open." in done.stdout
    assert "gateway run open c1 --task TASK" in done.stdout
    assert json.loads(gateway("campaign", "show", "c1", "--json").stdout)["planned"] == 12


def test_opening_a_campaign_again_under_the_same_policy_is_no_error(gateway: Gateway) -> None:
    gateway("campaign", "open", "c1", "--policy", "pilot")
    again = gateway("campaign", "open", "c1", "--policy", "pilot")
    assert again.exit_code == 0
    assert "open already" in again.stdout


def test_a_campaign_open_under_another_policy_is_refused_with_five(gateway: Gateway, house: House) -> None:
    gateway("campaign", "open", "c1", "--policy", "pilot")
    (house.policies / "other.toml").write_text((house.policies / "pilot.toml").read_text().replace("runs = 3", "runs = 4"))
    done = gateway("campaign", "open", "c1", "--policy", "other")
    assert done.exit_code == 5
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["problem", "cause", "mend"]
    assert done.stdout == ""


def test_a_policy_that_is_not_there_is_refused_and_those_that_are_are_named(gateway: Gateway) -> None:
    done = gateway("campaign", "open", "c1", "--policy", "plot")
    assert done.exit_code == 5
    assert "pilot" in done.stderr


def test_a_policy_that_cannot_be_used_is_a_configuration_error(gateway: Gateway, house: House) -> None:
    (house.policies / "wrong.toml").write_text("schema = 1\nrequests = 3\n")
    done = gateway("campaign", "open", "c1", "--policy", "wrong")
    assert done.exit_code == 2
    assert "wrong.toml:2" in done.stderr


def test_opening_a_run_prints_an_export_line_for_each_lane(gateway: Gateway) -> None:
    gateway("campaign", "open", "c1", "--policy", "pilot")
    done = gateway("run", "open", "c1/r1", "--task", "t7", "--label", "engineering")
    assert done.exit_code == 0, done.stderr
    exported = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert len(exported) == 2
    for line in exported:
        assert line.startswith("export OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=gw-")
    assert "# lane foreground" in done.stdout and "# lane background" in done.stdout
    assert "gateway run close c1/r1" in done.stdout
    shown = gateway("run", "show", "r1").stdout
    assert "t7" in shown and "engineering" in shown and "run.output_tokens" in shown


def test_a_run_can_be_opened_for_one_lane_and_without_a_name(gateway: Gateway) -> None:
    gateway("campaign", "open", "c1", "--policy", "pilot")
    answer = json.loads(gateway("run", "open", "c1", "--lane", "background", "--json").stdout)
    assert list(answer["keys"]) == ["background"]
    assert answer["base_url"] == "http://127.0.0.1:8080/v1"
    assert answer["run"]


def test_the_same_idempotency_key_gives_the_same_run_and_other_arguments_are_refused(gateway: Gateway) -> None:
    gateway("campaign", "open", "c1", "--policy", "pilot")
    first = json.loads(gateway("run", "open", "c1", "--task", "t", "--idempotency-key", "k1", "--json").stdout)
    again = json.loads(gateway("run", "open", "c1", "--task", "t", "--idempotency-key", "k1", "--json").stdout)
    assert again["run"] == first["run"] and first["created"] and not again["created"]
    assert gateway("run", "open", "c1", "--task", "other", "--idempotency-key", "k1").exit_code == 5


def test_a_limit_on_runs_refuses_with_five_and_its_name(gateway: Gateway) -> None:
    for run in ("r1", "r2", "r3"):
        opened(gateway, run)
    done = gateway("run", "open", "c1/r4")
    assert done.exit_code == 5
    assert "campaign.runs" in done.stderr


def test_closing_a_run_prints_its_receipt(gateway: Gateway, house: House) -> None:
    opened(gateway, "r1", "--task", "t7")
    house.call("c1", "r1", "call-1", Usage(input_tokens=1234, output_tokens=40))
    done = gateway("run", "close", "c1/r1", "--exit", "0", "--turn-end", "completed", "--judge", "pass", "--outcome", "tests=passed")
    assert done.exit_code == 0, done.stderr
    assert "Receipt of run c1/r1" in done.stdout
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line.startswith(("requests", "input_tokens", "output_tokens"))}
    assert rows == {"requests": ["1", "-", "1"], "input_tokens": ["1234", "0", "1234"], "output_tokens": ["40", "0", "40"]}
    assert "turn_end completed" in done.stdout and "tests passed" in done.stdout


def test_a_conflict_exits_three_and_the_receipt_lists_it(gateway: Gateway, house: House) -> None:
    opened(gateway)
    house.call("c1", "r1", "call-1", Usage(input_tokens=10, output_tokens=50), outcome=Outcome.LENGTH)
    done = gateway("run", "close", "c1/r1", "--exit", "1", "--turn-end", "completed")
    assert done.exit_code == 3
    conflicts = [line for line in done.stdout.splitlines() if line.startswith("conflict:")]
    assert len(conflicts) == 2
    opened(gateway, "r2")
    as_json = gateway("run", "close", "c1/r2", "--turn-end", "budget", "--json")
    assert as_json.exit_code == 3
    assert json.loads(as_json.stdout)["conflicts"]


def test_other_results_need_a_reason(gateway: Gateway) -> None:
    opened(gateway)
    assert gateway("run", "close", "r1", "--judge", "fail").exit_code == 0
    assert gateway("run", "close", "r1", "--judge", "pass").exit_code == 5
    corrected = gateway("run", "close", "r1", "--judge", "pass", "--reason", "the judge was wrong", "--json")
    assert corrected.exit_code == 0
    assert json.loads(corrected.stdout)["receipt"]["receipt"] == 2


def test_an_unknown_number_is_written_unknown_beside_what_is_charged(gateway: Gateway, house: House) -> None:
    opened(gateway)
    house.call("c1", "r1", "call-1", Usage(), source=Source.UNKNOWN, outcome=Outcome.LOST)
    receipt = gateway("run", "close", "r1").stdout
    assert [line.split() for line in receipt.splitlines() if line.startswith("input_tokens")] == [["input_tokens", "unknown", "1", "100"]]
    table = gateway("usage").stdout.splitlines()
    assert table[0].split("  ")[0] == "CAMPAIGN"
    assert table[1].split()[:9] == ["c1", "r1", "-", "1", "0", "unknown", "1", "unknown", "1"]
    assert table[1].split()[9:] == ["1", "100", "50", "unknown", "1"]


def test_usage_is_summed_by_each_kind_in_each_form(gateway: Gateway, house: House) -> None:
    opened(gateway)
    house.call("c1", "r1", "call-1", Usage(input_tokens=1_000_000, output_tokens=7))
    house.call("c1", "r1", "call-2", Usage(input_tokens=5), source=Source.UNKNOWN, outcome=Outcome.ENGINE_DIED)
    for by in ("run", "lane", "campaign", "model", "label"):
        group = json.loads(gateway("usage", "--by", by, "--format", "json").stdout)["groups"][0]
        assert group["usage"]["input_tokens"] == {"sum": 1_000_005, "unknown": 0}
        assert "1000005" in gateway("usage", "--by", by).stdout
        header, line = (row.split(",") for row in gateway("usage", "--by", by, "--format", "csv").stdout.splitlines())
        row = dict(zip(header, line, strict=True))
        assert (row["input_tokens"], row["output_tokens"], row["output_tokens_unknown"], row["charged_output_tokens"]) == ("1000005", "7", "1", "57")
        assert (row["calls"], row["calls_reported"], row["calls_unknown"]) == ("2", "1", "1")


def test_usage_by_day_is_told_in_each_form_with_its_zone(gateway: Gateway, house: House) -> None:
    berlin = (house.policies / "pilot.toml").read_text().replace("schema = 1", 'schema = 1\ntimezone = "Europe/Berlin"')
    (house.policies / "berlin.toml").write_text(berlin)
    opened(gateway, "r1", campaign="plain")
    house.call("plain", "r1", "call-1", Usage(input_tokens=5, output_tokens=7))
    without = gateway("usage", "--by", "day")
    assert (without.exit_code, "--zone" in without.stderr, "no policy of these calls names the zone" in without.stderr) == (2, True, True)
    assert gateway("campaign", "open", "c1", "--policy", "berlin").exit_code == 0
    opened(gateway, "r2")
    house.call("c1", "r2", "call-2", Usage(input_tokens=5, output_tokens=7))
    asked, file = ("usage", "--by", "day", "--campaign", "c1"), ("--ledger", str(house.ledger_path))
    told, read = (json.loads(gateway(*asked, "--json", *more).stdout) for more in ((), file))
    assert told == read
    assert (told["zone"], [group["charge"]["output_tokens"] for group in told["groups"]]) == ("Europe/Berlin", [7])
    day = told["groups"][0]["day"]
    table = gateway(*asked).stdout
    assert table.splitlines()[0].split()[0] == "DAY" and table.splitlines()[1].split()[0] == day
    assert "Days in Europe/Berlin" in table
    header, line = (row.split(",") for row in gateway(*asked, "--zone", "UTC", "--format", "csv").stdout.splitlines())
    assert (header[:3], line[1]) == (["day", "zone", "labels"], "UTC")
    wrong = gateway(*asked, "--zone", "Berlin"), gateway(*asked, "--zone", "Berlin", *file)
    assert [done.exit_code for done in wrong] == [2, 2] and all("no time zone 'Berlin'" in done.stderr for done in wrong)


def test_usage_over_several_labels_is_refused_unless_it_is_asked_for(gateway: Gateway, house: House) -> None:
    opened(gateway, "r1", "--label", "engineering")
    opened(gateway, "r2", "--label", "production")
    house.call("c1", "r1", "call-1", Usage(input_tokens=1, output_tokens=1))
    house.call("c1", "r2", "call-2", Usage(input_tokens=2, output_tokens=2))
    by_run = gateway("usage")
    assert by_run.exit_code == 0
    assert "No total" in by_run.stdout and "engineering, production" in by_run.stdout
    alone = gateway("usage", "--by", "campaign", "--ledger", str(house.ledger_path))
    assert alone.exit_code != 0 and "--across-labels" in alone.stderr
    through = gateway("usage", "--by", "campaign")
    assert through.exit_code == alone.exit_code and "--across-labels" in through.stderr
    asked = gateway("usage", "--by", "campaign", "--across-labels")
    assert asked.exit_code == 0 and "engineering, production" in asked.stdout


def test_usage_and_receipts_are_read_from_a_file_as_from_the_gateway(gateway: Gateway, house: House) -> None:
    opened(gateway)
    house.call("c1", "r1", "call-1", Usage(input_tokens=3, output_tokens=4))
    gateway("run", "close", "r1")
    file = ("--ledger", str(house.ledger_path))
    for command in (("usage",), ("usage", "--run", "c1/r1"), ("receipt", "r1"), ("receipt", "c1/r1")):
        asked, read = gateway(*command, "--json"), gateway(*command, "--json", *file)
        assert asked.exit_code == read.exit_code == 0, asked.stderr + read.stderr
        assert json.loads(asked.stdout) == json.loads(read.stdout)


def test_a_run_is_named_alone_only_where_it_is_the_only_one(gateway: Gateway) -> None:
    opened(gateway, "r1")
    opened(gateway, "r1", campaign="c2")
    done = gateway("run", "show", "r1")
    assert done.exit_code == 2
    assert "c1/r1, c2/r1" in done.stderr
    assert gateway("run", "show", "c2/r1").exit_code == 0
    assert gateway("run", "show", "r9").exit_code == 5
    assert gateway("run", "show", "a/b/c").exit_code == 2


def test_a_name_that_is_a_campaign_and_a_run_is_not_guessed(gateway: Gateway) -> None:
    opened(gateway, "c1")
    gateway("run", "close", "c1/c1")
    assert gateway("receipt", "c1").exit_code == 2
    assert gateway("receipt", "c1/c1").exit_code == 0
    gateway("campaign", "close", "c1")
    assert "Receipt of campaign c1" in gateway("receipt", "c1/").stdout


def test_keys_are_issued_listed_and_revoked_and_a_secret_is_shown_once(gateway: Gateway) -> None:
    opened(gateway)
    issued = json.loads(gateway("key", "issue", "r1", "--lane", "background", "--json").stdout)
    assert issued["key"].startswith("gw-")
    listed = gateway("key", "list", "r1")
    assert issued["key_id"] in listed.stdout and issued["key"] not in listed.stdout
    assert listed.stdout.count("live") == 3
    assert gateway("key", "revoke", issued["key_id"]).exit_code == 0
    assert gateway("key", "list", "r1").stdout.count("revoked") == 1
    assert gateway("key", "revoke", "c1/r1", "--lane", "foreground").exit_code == 0
    assert gateway("key", "list", "--campaign", "c1").stdout.count("revoked") == 2
    assert gateway("key", "revoke", "r1").exit_code == 0
    assert gateway("key", "revoke", "r1").exit_code == 5
    assert gateway("key", "revoke", "key-000000000000").exit_code == 5
    assert gateway("key", "issue", "r1").exit_code == 2, "two lanes: one must be named"
    assert gateway("key", "issue", "r1", "--lane", "middle").exit_code == 2


def test_a_campaign_is_halted_resumed_and_closed(gateway: Gateway) -> None:
    opened(gateway)
    assert gateway("campaign", "halt", "c1", "--reason", "the engine burns").exit_code == 0
    shown = gateway("campaign", "show", "c1").stdout
    assert "halted" in shown and "the engine burns" in shown
    assert gateway("campaign", "resume", "c1").exit_code == 0
    assert gateway("campaign", "list").stdout.splitlines()[1].split()[:4] == ["c1", "open", "pilot", "-"]
    closed = gateway("campaign", "close", "c1")
    assert closed.exit_code == 0, closed.stderr
    assert "Receipt of campaign c1" in closed.stdout
    assert gateway("campaign", "halt", "c1").exit_code == 5
    assert gateway("run", "open", "c1").exit_code == 5


def test_the_clock_is_shown_and_accepted(gateway: Gateway) -> None:
    shown = gateway("ledger", "clock")
    assert shown.exit_code == 0 and "certain" in shown.stdout
    accepted = gateway("ledger", "clock", "--accept", "--reason", "I looked", "--json")
    assert accepted.exit_code == 0 and json.loads(accepted.stdout)["certain"] is True


def test_an_uncertain_clock_exits_one_until_a_person_accepts_it(gateway: Gateway, house: House) -> None:
    gateway("campaign", "open", "c1", "--policy", "pilot")
    house.shift_ms = 10 * 60 * 1000
    shown = gateway("ledger", "clock")
    assert shown.exit_code == 1
    assert "uncertain" in shown.stdout and "gateway ledger clock --accept" in shown.stdout
    refused = gateway("run", "open", "c1/r1")
    assert refused.exit_code == 5 and "--accept" in refused.stderr
    assert gateway("ledger", "clock", "--accept").exit_code == 0
    assert gateway("run", "open", "c1/r1").exit_code == 0


def test_no_key_is_issued_that_could_not_be_printed(gateway: Gateway, house: House) -> None:
    opened(gateway)
    house.data_address = ""
    for line in (("run", "open", "c1/r2"), ("key", "issue", "c1/r1", "--lane", "background")):
        assert gateway(*line).exit_code == 5
    assert len(house.runs.campaign("c1").runs) == 1
    assert len(house.runs.keys()) == 2


def test_empty_lists_say_how_to_begin(gateway: Gateway) -> None:
    assert "gateway campaign open" in gateway("campaign", "list").stdout
    assert "gateway run open" in gateway("run", "list").stdout
    assert json.loads(gateway("run", "list", "--json").stdout) == {"runs": []}
    assert "No calls." in gateway("usage").stdout


def test_a_campaign_that_gets_another_version_than_the_file_has_by_now_is_told_so(gateway: Gateway, house: House) -> None:
    first = json.loads(gateway("campaign", "open", "c1", "--policy", "pilot", "--json").stdout)
    file = house.policies / "pilot.toml"
    file.write_text(file.read_text().replace("requests = 10", "requests = 11"))
    noted = gateway("campaign", "open", "c2", "--policy", "pilot")
    assert noted.exit_code == 0
    assert "note: " in noted.stdout and "gateway policy reload" in noted.stdout
    assert first["policy_hash"] in noted.stdout
    shown = gateway("policy", "reload")
    assert shown.exit_code == 0
    assert [line.split()[:2] for line in shown.stdout.splitlines()] == [["POLICY", "CHANGE"], ["pilot", "changed"]]
    later = gateway("campaign", "open", "c3", "--policy", "pilot")
    assert "note: " not in later.stdout and first["policy_hash"] not in later.stdout


def test_a_call_is_explained_from_the_gateway_and_from_a_file(gateway: Gateway, house: House) -> None:
    opened(gateway, "r1")
    house.call("c1", "r1", "call-1", Usage(input_tokens=10), source=Source.COUNTED, outcome=Outcome.CLIENT_CANCELLED)
    told = gateway("explain", "call-1")
    assert told.exit_code == 0, told.stderr
    assert "client_cancelled: the agent left before the end of its answer" in told.stdout
    assert "used 10 input tokens, unknown output tokens (source counted); charged 1 requests, 10 input tokens, 50 output tokens" in told.stdout
    assert gateway("explain", "call-1", "--ledger", str(house.ledger_path)).stdout == told.stdout
    assert gateway("explain", "call-2", "--ledger", str(house.ledger_path)).exit_code != 0


def test_a_campaign_shows_what_is_missing_by_number_or_by_name(gateway: Gateway, house: House) -> None:
    plan = house.folder / "plan.csv"
    plan.write_text("run\na\nb\n")
    gateway("campaign", "open", "counted", "--policy", "pilot", "--planned", "2")
    gateway("campaign", "open", "named", "--policy", "pilot", "--plan", str(plan))
    gateway("campaign", "open", "free", "--policy", "pilot")

    def missing(campaign: str) -> str:
        return next(line.split()[-1] for line in gateway("campaign", "show", campaign).stdout.splitlines() if "missing so far" in line)

    gateway("run", "open", "counted/a")
    gateway("run", "open", "named/a")
    assert [missing(name) for name in ("counted", "named", "free")] == ["1", "b", "-"]
    gateway("run", "open", "counted/c")
    gateway("run", "open", "named/b")
    assert [missing(name) for name in ("counted", "named", "free")] == ["none", "none", "-"]
