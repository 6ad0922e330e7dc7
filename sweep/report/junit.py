"""Results as JUnit's XML, which every CI shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from xml.etree import ElementTree as ET

from sweep.case.labels import Case
from sweep.checks import Finding
from sweep.judge import Verdict
from sweep.report.markdown import failure_note
from sweep.report.result import Result, printable

GRAPH_BREAKS = "graph_breaks"


def junit(
    sweep_id: str, results: Sequence[Result], missing: Sequence[Case] = (), spared: str = ""
) -> str:
    """One test per planned case, and one for its graph breaks.

    Skipped if unavailable or known to fail. A case without a result is an error: CI must not be
    green for a sweep that was cut off. `spared`: why those were not run.
    """
    tests = [_junit_test(*part) for result in results for part in _parts(result)]
    tests += [_not_run(case, spared) for case in missing]
    suite = ET.Element(
        "testsuite",
        name=f"sweep {sweep_id}",
        tests=str(len(tests)),
        failures=str(sum(test.find("failure") is not None for test in tests)),
        errors=str(len(missing)),
        skipped=str(sum(test.find("skipped") is not None for test in tests)),
    )
    suite.extend(tests)
    return ET.tostring(suite, encoding="utf-8", xml_declaration=True).decode() + "\n"


def _parts(result: Result) -> Iterator[tuple[str, Result]]:
    """A case whose only fault are graph breaks trains well: they are a result of their own."""
    findings = result.judgement.findings
    others = _only(result, [finding for finding in findings if finding.check != GRAPH_BREAKS])
    breaks = _only(result, [finding for finding in findings if finding.check == GRAPH_BREAKS])
    breaks = replace(breaks, facts=None)  # time and logs are the case's
    is_only_breaks = not others.message and bool(breaks.message)
    yield _test_name(result.case), _passed(others) if is_only_breaks else others
    if breaks.judgement.findings:
        yield "test_no_graph_breaks", breaks if breaks.message else _passed(breaks)


def _test_name(case: Case) -> str:
    return f"test_{re.sub(r'[^0-9A-Za-z_]', '_', case.trainer)}"


def _not_run(case: Case, spared: str) -> ET.Element:
    test = ET.Element(
        "testcase", classname=case.arch, name=f"{_test_name(case)}[{case.id}]", time="0.000"
    )
    why = printable(f"spared: {spared}" if spared else "the sweep ended before it")
    message = f"planned, and without a result: {why}"
    ET.SubElement(test, "error", message=message, type="not run")
    return test


def _only(result: Result, findings: list[Finding]) -> Result:
    judgement = result.judgement.model_copy(update={"findings": findings})
    return replace(result, judgement=judgement)


def _passed(result: Result) -> Result:
    judgement = result.judgement.model_copy(update={"verdict": Verdict.PASSED})
    return replace(result, judgement=judgement)


def _junit_test(name: str, result: Result) -> ET.Element:
    verdict, message = result.judgement.verdict, printable(result.message)
    seconds = result.facts.seconds if result.facts else 0.0
    test = ET.Element("testcase", classname=result.case.arch, name=f"{name}[{result.case.id}]",
                      time=f"{seconds:.3f}")  # fmt: skip
    if verdict in (Verdict.UNAVAILABLE, Verdict.KNOWN):
        ET.SubElement(test, "skipped", message=message, type=verdict.value)
    elif not verdict.good:
        failure = ET.SubElement(test, "failure", message=message, type=verdict.value)
        failure.text = printable(failure_note(result))
    if result.notes:
        ET.SubElement(test, "system-out").text = printable("\n".join(result.notes))
    return test
