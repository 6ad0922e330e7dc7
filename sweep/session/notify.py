"""Posts a sweep's short summary to a webhook (`notify=`): in time, and failing no sweep."""

from __future__ import annotations

import json
import sys
import threading
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from sweep.errors import RequestError
from sweep.history.case import BAD
from sweep.report import Report, Result, brief, exit_code
from sweep.report.brief import headline
from sweep.report.past import Past
from sweep.report.result import printable, short
from sweep.schema import NotifyForm

SECONDS = 10.0  # for all of it
SLACK = "hooks.slack.com"
SHOWN = 10  # cases in a chat's message
MESSAGE = 200  # characters of what was found


@dataclass(frozen=True)
class Notice:
    """Where to post, in which form, and whether also where nothing changed."""

    address: str
    form: NotifyForm = NotifyForm.auto
    always: bool = False
    seconds: float = SECONDS

    @classmethod
    def asked_for(cls, address: str | None, form: NotifyForm, always: bool) -> Notice | None:
        """From `notify=`, `notify_form=` and `notify_always=`; raises RequestError."""
        if address is None:
            return None
        try:
            parts = urlsplit(address)
            known = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            known = False
        if not known:  # the address is a secret, and not repeated
            raise RequestError("notify: say the webhook's address, which begins with https://")
        return cls(address, form, always)

    @property
    def host(self) -> str:
        """All of the address that may be shown."""
        return urlsplit(self.address).hostname or ""

    @property
    def is_slack(self) -> bool:
        """Whether the text is for a chat."""
        return self.form is NotifyForm.slack or (
            self.form is NotifyForm.auto and self.host == SLACK
        )

    def send(self, about: Report, problem: str | None) -> None:
        """Post it if something changed; what goes wrong is a line on the terminal."""
        if not (self.always or problem or has_changed(about)):
            return
        body = slack(about, problem) if self.is_slack else plain(about, problem)
        errors: list[str] = []
        post = threading.Thread(target=self._post, args=(body, errors), daemon=True)
        post.start()
        post.join(self.seconds)  # a server may answer a byte a second
        if post.is_alive():
            errors.append(f"no answer in {self.seconds:g} s")
        if errors:
            print(f"notify: {self.host} was not told: {errors[0]}", file=sys.stderr)

    def _post(self, body: dict[str, Any], errors: list[str]) -> None:
        try:
            request = urllib.request.Request(  # http alone, by asked_for
                self.address,
                json.dumps(body).encode(),
                {"Content-Type": "application/json", "User-Agent": "trainer-sweep"},
            )
            with urllib.request.urlopen(request, timeout=self.seconds):
                pass
        except Exception as error:  # noqa: BLE001  # whatever it is, the sweep has its results
            said = str(error).replace(self.address, self.host)
            errors.append(printable(" ".join(said.split()))[:MESSAGE])


def has_changed(about: Report) -> bool:
    """Whether a verdict differs from the night before; of a case without one, whether it fails."""
    return bool(about.missing) or any(_is_news(result, about.past) for result in about.results)


def _is_news(result: Result, past: Past) -> bool:
    verdict = result.judgement.verdict
    before = past.before.get(result.case.id)
    if before is None:
        return not verdict.good
    return before != verdict and not (verdict.good and before not in BAD)


def plain(about: Report, problem: str | None) -> dict[str, Any]:
    """As JSON for any receiver; `markdown` is summary.md."""
    bad = [result for result in about.results if not result.judgement.verdict.good]
    verdicts = [result.judgement.verdict.value for result in about.results]
    return {
        "experiment": about.experiment,
        "sweep": about.sweep_id,
        "headline": headline(about.results, about.missing, about.past),
        "exit_code": exit_code(about.results, problem),
        "problem": problem,
        "counts": {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))},
        "not_run": len(about.missing),
        "failing": [_case(result, about.past) for result in bad],
        "recovered": _recovered(about),
        "markdown": brief(
            about.experiment,
            about.sweep_id,
            about.results,
            about.missing,
            about.past,
            about.spared,
        ),
    }


def _case(result: Result, past: Past) -> dict[str, Any]:
    known = past.failing.get(result.case.id)
    return {
        "case": result.case.id,
        "verdict": result.judgement.verdict.value,
        "regressed": past.has_regressed(result.case.id),
        "since": known.since if known else None,
        "message": short(result.message),
        "command": result.command,
    }


def slack(about: Report, problem: str | None) -> dict[str, Any]:
    """As Slack takes it, and chats that take the same."""
    head = f"*{about.experiment}: {headline(about.results, about.missing, about.past)}*"
    lines = [f"{_escaped(head)} ({about.sweep_id})"]
    lines += [_escaped(problem)] if problem else []
    bad = [result for result in about.results if not result.judgement.verdict.good]
    bad.sort(key=lambda result: not about.past.has_regressed(result.case.id))
    lines += [line for result in bad[:SHOWN] for line in _lines(result, about.past)]
    lines += [f"and {len(bad) - SHOWN} more"] if len(bad) > SHOWN else []
    recovered: Sequence[str] = _recovered(about)
    lines += [f"passes again: {_escaped(', '.join(recovered[:SHOWN]))}"] if recovered else []
    return {"text": "\n".join(lines)}


def _lines(result: Result, past: Past) -> list[str]:
    known = past.failing.get(result.case.id)
    since = f" {known.words}" if known else ""
    said = f"{result.judgement.verdict.value}{since}: {short(result.message, MESSAGE)}"
    return [
        f"• *{_escaped(result.case.id)}* {_escaped(said)}",
        f"`{_escaped(short(result.command, 1000)).replace('`', ' ')}`",
    ]


def _recovered(about: Report) -> list[str]:
    return [
        result.case.id
        for result in about.results
        if result.judgement.verdict.ran_well and about.past.before.get(result.case.id) in BAD
    ]


def _escaped(text: str) -> str:
    """Slack's own three characters; `<!channel>` in a trainer's message calls nobody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
