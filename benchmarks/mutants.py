"""Small random changes of a trainer's source, one at a time: which check sees them?

python benchmarks/mutants.py outputs/mutants ../shared/mutants/mutate.py
python benchmarks/mutants.py outputs/mutants ../shared/mutants/mutate.py --report

The tree of HEAD is copied, and the suites are run in it twice as they are, and once with a note of
the files that every case calls. Each mutant then meets the cheapest architecture whose cases call
its file and, where no check that gates sees it, all cases that do. It has an effect if a figure
differs that was the same in both clean runs. The seed is HEAD's hash; results are appended to
results.jsonl, and a second start goes on there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FILES = ("sft", "hf_sft")
PROGRAMS = ("sft/__main__.py", "hf_sft/__main__.py")
SUITES = {"sft": ["nightly", "resume_all"], "hf_sft": ["hf_trainer"]}
CHEAP = ("llama", "qwen3_moe", "gpt_oss")
NOISE = {"step_seconds", "step_cpu_seconds", "peak_memory_gib"}
TRACED = """
import os, sys, threading
def _note(frame, event, argument, seen=set()):
    path = frame.f_code.co_filename
    if event == "call" and path not in seen:
        seen.add(path)
        if path.startswith({tree!r}):
            with open(os.path.join(os.path.dirname(sys.argv[-1]), "called.txt"), "a") as notes:
                notes.write(os.path.relpath(path, {tree!r}) + "\\n")
sys.setprofile(_note)
threading.setprofile(_note)
"""


@dataclass
class Result:
    """What the sweeps made of a mutant."""

    id: str
    change: str
    gates: dict[str, list[str]] = field(default_factory=dict)  # check -> cases
    advisory: dict[str, list[str]] = field(default_factory=dict)
    differs: list[str] = field(default_factory=list)  # figures, the first of them
    cases: int = 0


@dataclass
class Ran:
    """A sweep's cases: verdicts, checks that failed, and figures by name."""

    gates: dict[str, list[str]]
    advisory: dict[str, list[str]]
    figures: dict[str, Any]
    called: dict[str, set[str]]  # file -> architectures
    cases: int


class Tree:
    """A copy of HEAD with caches of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.source = folder, folder / "tree"
        if not self.source.exists():
            self.source.mkdir(parents=True)
            archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, stdout=-1, check=True)
            subprocess.run(["tar", "-x"], cwd=self.source, input=archive.stdout, check=True)

    def run(self, suite: str, archs: Sequence[str], outputs: Path, more: Sequence[str]) -> Ran:
        """Sweep; one that records nothing is caught by its exit code."""
        words = [f"suite={suite}", *([f"arch={','.join(archs)}"] if archs else []), *more]
        before = set(outputs.glob("2*"))
        done = self.python("sweep", "-m", *words, f"outputs={outputs}")
        made = set(outputs.glob("2*")) - before
        said = (done.stderr.strip().splitlines() or [""])[-1]
        return read(made.pop() if made else None, done.returncode, said)

    def python(self, module: str, *words: str) -> subprocess.CompletedProcess[str]:
        """A module of the copy, with caches of its own."""
        environment = os.environ | {
            "PYTHONPATH": str(self.source), "MLFLOW_TRACKING_URI": "",
            "SWEEP_CACHE": str(self.folder / "cache"), "SFT_CACHE": str(self.folder / "cache"),
        }  # fmt: skip
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return subprocess.run(
            [sys.executable, "-m", module, *words],
            cwd=self.source, env=environment, capture_output=True, text=True,
        )  # fmt: skip

    @contextmanager
    def after(self, clean: Path) -> Iterator[Path]:
        """An outputs folder with the clean sweeps, for `drift`; what is added to it goes again."""
        outputs, kept = self.folder / "outputs", self.folder / "store"
        if not kept.exists():  # a store names its place, so it is made anew from the folders
            shutil.copytree(
                clean, outputs, ignore=shutil.ignore_patterns("mlflow.db*", "artifacts")
            )
            self.python("sweep.sync", f"outputs={outputs}")
            shutil.copy(outputs / "mlflow.db", kept)
        before = set(outputs.iterdir())
        yield outputs
        for made in set(outputs.iterdir()) - before:
            shutil.rmtree(made) if made.is_dir() else made.unlink()
        shutil.copy(kept, outputs / "mlflow.db")

    def write(self, file: str, text: str) -> None:
        """Change a file; Python would take an old .pyc for it if size and second are the same."""
        path = self.source / file
        path.write_text(text, encoding="utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()


def read(sweep: Path | None, code: int, said: str) -> Ran:
    """What a sweep's folder says."""
    ran = Ran({}, {}, {}, {}, 0)
    for case in sorted(sweep.glob("*/case.json")) if sweep else ():
        name = case.parent.name
        ran.cases += 1
        for finding in _json(case.parent / "findings.json").get("findings", []):
            if finding["outcome"] == "fail" and not finding["known"]:
                seen = ran.advisory if finding["advisory"] else ran.gates
                seen.setdefault(finding["check"], []).append(name)
        for key, value in figures(_json(case.parent / "facts.json")):
            ran.figures[f"{name}/{key}"] = value
        for notes in case.parent.glob("launches/*/called.txt"):
            for file in set(notes.read_text().split()):
                ran.called.setdefault(file, set()).add(_json(case)["case"]["arch"])
    if code and not ran.gates:
        ran.gates["exit code"] = [f"{code}: {said}"]
    return ran


def figures(facts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Everything a trainer reported, by launch and step, but times and memory."""
    for launch in facts.get("launches", ()):
        yield f"{launch['name']}/exit_code", launch["exit_code"]
        for key, value in (launch["compiler"] or {}).items():
            yield f"{launch['name']}/{key}", value
        for step in launch["metrics"]["steps"]:
            for key in step.keys() - NOISE:
                yield f"{launch['name']}/{step['step']}/{key}", step[key]


class Clean:
    """The suites as they are: figures that stay the same, and who calls which file."""

    def __init__(self, folder: Path, suites: Sequence[str], more: Sequence[str]) -> None:
        tree, self.outputs = Tree(folder), folder / "outputs"
        self.figures: dict[str, dict[str, Any]] = {}
        self.called: dict[str, set[str]] = {}
        for suite in suites:
            first, second = (tree.run(suite, [], self.outputs, more) for _ in range(2))
            if first.gates or second.gates:
                raise SystemExit(f"suite={suite} fails without a mutant: {first.gates}; mend it")
            self.figures[suite] = {
                key: value for key, value in first.figures.items()
                if second.figures.get(key) == value
            }  # fmt: skip
        originals = {name: (tree.source / name).read_text(encoding="utf-8") for name in PROGRAMS}
        after, noting = "from __future__ import annotations\n", TRACED.format(tree=str(tree.source))
        for name, text in originals.items():
            tree.write(name, text.replace(after, after + noting, 1))
        for suite in suites:
            for file, archs in tree.run(suite, [], folder / "called", more).called.items():
                self.called.setdefault(file, set()).update(archs)
        for name, text in originals.items():  # a second start takes the tree as it is
            tree.write(name, text)


def examine(
    change: tuple[str, str], tree: Tree, clean: Clean, mutate: Path, more: Sequence[str]
) -> Result:
    """Plant a mutant, run what may see it, and take it out again."""
    name, shown = change
    file = name.split(":")[0]
    original = (tree.source / file).read_text(encoding="utf-8")
    result = Result(name, shown)
    subprocess.run([sys.executable, mutate, "apply", tree.source, name], check=True)
    tree.write(file, (tree.source / file).read_text(encoding="utf-8"))
    try:
        for suite, archs in stages(file, clean):
            with tree.after(clean.outputs) as outputs:
                ran = tree.run(suite, archs, outputs, more)
            note(result, ran, clean.figures[suite])
            if result.gates:
                break
    finally:
        tree.write(file, original)
        shutil.rmtree(tree.folder / "cache", ignore_errors=True)  # a mutant packs other rows
    return result


def stages(file: str, clean: Clean) -> Iterator[tuple[str, list[str]]]:
    """Suites and architectures, the cheapest first; all of them where no case calls the file."""
    archs = sorted(clean.called.get(file, ()))
    suites = [suite for suite in SUITES[Path(file).parts[0]] if suite in clean.figures]
    if not archs:
        yield from ((suite, archs) for suite in suites)
        return
    first, *others = sorted(archs, key=lambda arch: (arch not in CHEAP, arch))
    yield suites[0], [first]
    if others:
        yield suites[0], others
    yield from ((suite, archs) for suite in suites[1:])


def note(result: Result, ran: Ran, expected: Mapping[str, Any]) -> None:
    """Add what a sweep showed to the mutant's result."""
    result.gates = ran.gates
    result.advisory |= ran.advisory
    result.cases += ran.cases
    cases = {key.split("/")[0] for key in ran.figures}
    stable = {key: value for key, value in expected.items() if key.split("/")[0] in cases}
    differs = (key for key, value in stable.items() if ran.figures.get(key) != value)
    result.differs = (result.differs + sorted(differs))[:5]


def report(results: Sequence[Result]) -> str:
    """The score, and every mutant with an effect that no check that gates saw."""
    effective = [result for result in results if result.gates or result.advisory or result.differs]
    caught = [result for result in effective if result.gates]
    missed = [result for result in effective if not result.gates]
    share = 100 * len(caught) / max(1, len(effective))
    score = (
        f"{len(results)} mutants, {len(effective)} with an effect, {len(caught)} caught by a check"
        f" that gates ({share:.0f} %)"
    )
    lines = [score, "", "| mutant | change | differs | advisory |", "| --- | --- | --- | --- |"]
    for result in missed:
        cells = (
            result.id,
            f"`{result.change}`",
            " ".join(result.differs[:2]),
            " ".join(result.advisory),
        )
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return "\n".join(lines)


def sample(mutate: Path, count: int, seed: str, files: Sequence[str]) -> list[tuple[str, str]]:
    """Mutants and what they change, drawn by the tool."""
    found = (path for name in files for path in _sources(ROOT / name))
    paths = sorted(str(path.relative_to(ROOT)) for path in found if "faults" not in path.parts)
    command = [sys.executable, str(mutate), "sample", str(ROOT), str(count), str(int(seed, 16))]
    drawn = subprocess.run([*command, *paths], capture_output=True, text=True, check=True).stdout
    rows = (line.split("\t") for line in drawn.splitlines())
    return [(row[0], f"{row[1]} -> {row[2]}") for row in rows]


def main() -> None:
    """Examine what has no result yet, and print the score."""
    args = arguments()
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    kept = args.out.resolve() / "results.jsonl"
    known = [Result(**json.loads(line)) for line in _lines(kept)]
    if not args.report:
        seed = args.seed or head.stdout.strip()
        drawn = sample(args.mutate.resolve(), args.count, seed, args.files.split(","))
        done = {result.id for result in known}
        left = [result for result in drawn if result[0] not in done]
        if args.suites:
            SUITES.update(dict.fromkeys(SUITES, args.suites.split(",")))
        trainers = dict.fromkeys(Path(name).parts[0] for name in args.files.split(","))
        suites = list(dict.fromkeys(suite for trainer in trainers for suite in SUITES[trainer]))
        clean = Clean(args.out.resolve() / "clean", suites, args.more)
        trees: SimpleQueue[Tree] = SimpleQueue()
        for number in range(args.workers):
            trees.put(Tree(args.out.resolve() / f"worker{number}"))

        def work(change: tuple[str, str]) -> None:
            tree = trees.get()
            try:
                result = examine(change, tree, clean, args.mutate.resolve(), args.more)
            finally:
                trees.put(tree)
            with kept.open("a") as file:
                file.write(json.dumps(asdict(result)) + "\n")
            print(f"{result.id}: {', '.join(result.gates) or 'not caught'}", flush=True)

        with ThreadPoolExecutor(args.workers) as pool:
            list(pool.map(work, left))
    print(report([Result(**json.loads(line)) for line in _lines(kept)]))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("mutate", type=Path, help="the tool that samples and applies mutants")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", help="hexadecimal; HEAD by default")
    parser.add_argument("--files", default=",".join(FILES), help="folders or files: a,b")
    parser.add_argument("--suites", help="others than each trainer's own: a,b")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="only print what is known")
    parser.add_argument("more", nargs="*", help="words for every sweep, as launch.slots=2")
    return parser.parse_args()


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _sources(path: Path) -> list[Path]:
    return [path] if path.is_file() else list(path.rglob("*.py"))


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    main()
