"""Results as JUnit's XML, which every CI shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from xml.etree import ElementTree as ET

from sweep.checks import Finding
from sweep.judge import Verdict
from sweep.report.markdown import failure_note
from sweep.report.result import Result, printable

GRAPH_BREAKS = "graph_breaks"


def junit(sweep_id: str, results: Sequence[Result]) -> str:
    """One test a case, and one for its graph breaks; skipped if unavailable, or known to fail."""
    tests = [_junit_test(*part) for result in results for part in _parts(result)]
    suite = ET.Element(
        "testsuite",
        name=f"sweep {sweep_id}",
        tests=str(len(tests)),
        failures=str(sum(test.find("failure") is not None for test in tests)),
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
    yield "test_sft", others if others.message or not breaks.message else _passed(others)
    if breaks.judgement.findings:
        yield "test_no_graph_breaks", breaks if breaks.message else _passed(breaks)


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
