"""The short summary and the webhook that it is posted to, a real server on loopback."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from sweep.case.folder import write_plan
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.errors import RequestError
from sweep.facts import Facts
from sweep.judge import Verdict
from sweep.report import Report, Result, brief
from sweep.report.past import Failing, Past
from sweep.report.result import LOCATED
from sweep.schema import NotifyForm
from sweep.session.driver import Session
from sweep.session.notify import Notice, has_changed, plain, slack
from tests.sweep.report.conftest import MakeResult, make_result
from tests.sweep.sessions import Job, leave_facts

__all__ = ["make_result"]  # a fixture
BAD = {"verdict": Verdict.FAILED, "message": "step 3: loss is off"}
CASE_ID = "llama-cp4_ep1-base"


@dataclass
class Hook:
    """A webhook that keeps what is posted to it."""

    address: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    delay: float = 0.0


@pytest.fixture
def hook() -> Iterator[Hook]:
    kept = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            kept.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            time.sleep(kept.delay)
            self.send_response(kept.status)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    kept.address = f"http://127.0.0.1:{server.server_port}/secret"
    yield kept
    server.shutdown()
    server.server_close()


def about(*results: Result, past: Past | None = None, missing: Sequence[Any] = ()) -> Report:
    return Report("20261201-000000-abcd", results, missing, {}, "nightly", "", past or Past())


def failing_since(before: str = "passed", nights: int = 1) -> Past:
    known = Failing("2026-11-27", nights, last_good="20261126-000000", moved=["torch 1 > 2"])
    return Past({CASE_ID: known}, {CASE_ID: before}, "history.html")


def test_the_summary_says_what_regressed_since_when_and_how_to_run_it(
    make_result: MakeResult,
) -> None:
    bad = make_result(**BAD)
    said = brief("nightly", "s1", [bad, make_result("qwen3")], [], failing_since())
    assert said.startswith("# nightly: 1 regressed\n")
    assert "## Regressed against the night before" in said
    assert (
        "- **llama-cp4_ep1-base** failed since 2026-11-27, 1 night (last passed in"
        " 20261126-000000): parity: step 3: loss is off" in said
    )
    assert "moved then: torch 1 \\> 2" in said
    assert f"      {bad.command}\n" in said
    assert len(said) < 1000


def test_what_failed_before_is_told_apart_from_what_regressed(make_result: MakeResult) -> None:
    said = brief("nightly", "s1", [make_result(**BAD)], [], failing_since("crashed", 4))
    assert said.startswith("# nightly: 1 failing\n")
    assert "## Fail for longer" in said
    assert "Regressed" not in said


def test_a_good_night_is_a_line(make_result: MakeResult) -> None:
    good = [make_result(), make_result("qwen3", verdict=Verdict.KNOWN, message="x")]
    assert brief("nightly", "s1", good, [], Past()).startswith("# nightly: all 2 cases are good\n")
    none = [make_result(verdict=Verdict.UNAVAILABLE, message="no GPU")]
    assert "nothing could run here" in brief("nightly", "s1", none, [], Past())


def test_a_flaky_case_is_never_a_good_night(make_result: MakeResult) -> None:
    flaky = [make_result(verdict=Verdict.FLAKY, message="passed only at attempt 2")]
    said = brief("nightly", "s1", flaky, [], Past())
    assert said.startswith("# nightly: 1 failing")
    assert "flaky" in said


def test_a_summary_of_many_failures_stays_short(make_result: MakeResult) -> None:
    many = [
        make_result(f"arch{n}", verdict=Verdict.FAILED, message="no " * 2000) for n in range(99)
    ]
    said = brief("nightly", "s1", many, [], Past())
    assert len(said) < 20_000  # GitHub takes 65,536
    assert "- and 84 more, in details.md" in said


def test_a_case_that_was_located_has_its_line(make_result: MakeResult, tmp_path: Path) -> None:
    result = replace(make_result(**BAD), folder=tmp_path)
    answer = result.folder / LOCATED
    answer.parent.mkdir(parents=True)
    answer.write_text(json.dumps({"line": "step 1, forward: model.layers.0.mlp differs"}))
    assert "model.layers.0.mlp differs" in brief("nightly", "s1", [result], [], Past())


@pytest.mark.parametrize(
    ("verdict", "before", "changed"),
    [
        ("passed", "passed", False),
        ("failed", "failed", False),
        ("failed", "passed", True),
        ("crashed", "failed", True),
        ("passed", "failed", True),
        ("flaky", "passed", True),
        ("passed", None, False),
        ("failed", None, True),
        ("known", "passed", False),
    ],
)
def test_only_a_change_is_news(
    make_result: MakeResult, verdict: str, before: str | None, changed: bool
) -> None:
    result = make_result(verdict=Verdict(verdict), message="" if verdict == "passed" else "x")
    past = Past({}, {CASE_ID: before} if before else {}, "history.html")
    assert has_changed(about(result, past=past)) is changed


def test_plain_json_and_slack_get_what_each_takes(make_result: MakeResult, hook: Hook) -> None:
    bad = make_result(verdict=Verdict.FAILED, message="<!channel> & step 3")
    one = about(bad, make_result("qwen3"), past=failing_since())
    Notice(hook.address).send(one, None)
    Notice(hook.address, NotifyForm.slack).send(one, None)
    first, second = hook.bodies
    assert (first["headline"], first["exit_code"]) == ("1 regressed", 1)
    assert first["counts"] == {"failed": 1, "passed": 1}
    (case,) = first["failing"]
    assert (case["case"], case["regressed"], case["since"]) == (CASE_ID, True, "2026-11-27")
    assert case["command"] == bad.command
    assert first["markdown"].startswith("# nightly")
    assert list(second) == ["text"]
    assert "*nightly: 1 regressed*" in second["text"]
    assert "&lt;!channel&gt; &amp; step 3" in second["text"]
    assert bad.command in second["text"]
    assert Notice("https://hooks.slack.com/services/x").is_slack
    assert not Notice("https://example.org/x").is_slack


def test_what_passes_again_is_told(make_result: MakeResult) -> None:
    one = about(make_result(), past=Past({}, {CASE_ID: "failed"}, "history.html"))
    assert plain(one, None)["recovered"] == [CASE_ID]
    assert f"passes again: {CASE_ID}" in slack(one, None)["text"]


def test_nothing_is_posted_where_nothing_changed_unless_told(
    make_result: MakeResult, hook: Hook
) -> None:
    same = about(make_result(), past=Past({}, {CASE_ID: "passed"}, "history.html"))
    Notice(hook.address).send(same, None)
    assert hook.bodies == []
    Notice(hook.address, always=True).send(same, None)
    Notice(hook.address).send(same, "the store is down")
    assert len(hook.bodies) == 2


def test_a_webhook_that_is_slow_or_refuses_costs_seconds_and_shows_no_secret(
    make_result: MakeResult, hook: Hook, capsys: pytest.CaptureFixture[str]
) -> None:
    hook.delay = 4.0
    began = time.monotonic()
    Notice(hook.address, seconds=0.5).send(about(make_result(**BAD)), None)
    assert time.monotonic() - began < 5
    Notice("http://127.0.0.1:9/secret").send(about(make_result(**BAD)), None)
    said = capsys.readouterr().err
    assert said.count("notify: 127.0.0.1 was not told: ") == 2
    assert "secret" not in said


def test_a_webhook_that_answers_with_an_error_is_told(
    make_result: MakeResult, hook: Hook, capsys: pytest.CaptureFixture[str]
) -> None:
    hook.status = 500
    Notice(hook.address).send(about(make_result(**BAD)), None)
    assert "notify: 127.0.0.1 was not told: HTTP Error 500" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["", "file:///etc/passwd", "hooks.slack.com/x", "http://[x"])
def test_what_is_no_web_address_is_refused_without_repeating_it(address: str) -> None:
    with pytest.raises(RequestError, match="begins with https://") as told:
        Notice.asked_for(address, NotifyForm.auto, False)
    assert not address or address not in str(told.value)
    assert Notice.asked_for(None, NotifyForm.auto, False) is None


def test_an_address_is_kept_in_no_file(planned: list[Planned], tmp_path: Path) -> None:
    words = ["-m", "notify=https://hooks.slack.com/s3cret", "notify=${oc.env:HOOK}", "steps=3"]
    write_plan(tmp_path / "s", planned, "adhoc", {}, words)
    argv = json.loads((tmp_path / "s" / "sweep.json").read_text())["argv"]
    assert argv == ["-m", "notify=***", "notify=${oc.env:HOOK}", "steps=3"]


def test_a_sweep_posts_at_its_end_and_keeps_its_exit_code(
    planned: list[Planned], make_facts: Callable[..., Facts], hook: Hook
) -> None:
    def sweep(code: int, notice: Notice) -> int:
        session = Session.begin(planned[:1], Machine(), live=False)
        session.notify(notice)

        def run() -> None:
            session.submitted(0, Job())
            session.started(0)
            leave_facts(session, 0, make_facts, exit_code=code)
            session.ended(0, "")

        return session.execute(run)

    notice = Notice(hook.address)
    assert sweep(0, notice) == 0
    assert hook.bodies == []
    assert sweep(1, notice) == 1
    assert sweep(1, notice) == 1  # as the night before
    (body,) = hook.bodies
    assert body["headline"] == "1 regressed"
    assert sweep(0, Notice("http://127.0.0.1:9/")) == 0
