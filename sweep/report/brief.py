"""summary.md: what a pull request's comment says. details.md has the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sweep.case.labels import Case
from sweep.judge import Verdict
from sweep.report.markdown import escaped
from sweep.report.past import Past
from sweep.report.result import Result, counts, short

MESSAGE = 300  # characters of what was found
SHOWN = 15  # cases under a heading
MOVED = 4  # parts of the provenance


def brief(
    experiment: str,
    sweep_id: str,
    results: Sequence[Result],
    missing: Sequence[Case],
    past: Past,
    spared: str = "",
) -> str:
    """What regressed, what fails as before, since when, and the command to run each again."""
    bad = [result for result in results if not result.judgement.verdict.good]
    new = [result for result in bad if past.has_regressed(result.case.id)]
    old = [result for result in bad if result.case.id in past.before and result not in new]
    first = [result for result in bad if result.case.id not in past.before]
    lines = [f"# {escaped(experiment)}: {headline(results, missing, past)}", ""]
    lines += [f"{counts(results)} (sweep {escaped(sweep_id)})"]
    lines += _section("Regressed against the night before", new, past)
    lines += _section("Fail for longer", old, past)
    lines += _section(
        "Fail, with no night before to compare with" if past.page else "Fail", first, past
    )
    if missing:
        why = f"spared: {spared}" if spared else "the sweep ended before them"
        lines += ["", f"{len(missing)} cases have no result, {escaped(short(why, MESSAGE))}"]
    return "\n".join(lines) + "\n"


def headline(results: Sequence[Result], missing: Sequence[Case], past: Past) -> str:
    """`2 regressed, 1 more failing`; in words where all is well."""
    bad = [result.case.id for result in results if not result.judgement.verdict.good]
    new = sum(map(past.has_regressed, bad))
    parts = {
        f"{new} regressed": new,
        f"{len(bad) - new} {'more ' if new else ''}failing": len(bad) - new,
        f"{len(missing)} without a result": len(missing),
    }
    told = ", ".join(said for said, count in parts.items() if count)
    if told:
        return told
    ran = [result for result in results if result.judgement.verdict is not Verdict.UNAVAILABLE]
    return f"all {len(ran)} cases are good" if ran else "nothing could run here"


def _section(title: str, results: Sequence[Result], past: Past) -> Iterator[str]:
    if not results:
        return
    yield from ("", f"## {title}", "")
    for result in results[:SHOWN]:
        yield from _case(result, past)
    if len(results) > SHOWN:
        yield f"- and {len(results) - SHOWN} more, in details.md"


def _case(result: Result, past: Past) -> Iterator[str]:
    known = past.failing.get(result.case.id)
    since = f" {known.words}" if known else ""
    good = f" (last passed in {known.last_good})" if known and known.last_good else ""
    name, verdict = escaped(result.case.id), result.judgement.verdict.value
    yield f"- **{name}** {verdict}{since}{good}: {escaped(short(result.message, MESSAGE))}"
    if known and known.moved:
        moved = ", ".join(known.moved[:MOVED])
        more = f" and {len(known.moved) - MOVED} more" if len(known.moved) > MOVED else ""
        yield f"  moved then: {escaped(moved)}{more}"
    if result.located:
        yield f"  {escaped(f'parts at: {short(result.located, MESSAGE)}')}"
    yield from ("", f"      {short(result.command, 2000)}", "")
