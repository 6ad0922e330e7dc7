"""Write the chat documents that ship with the trainer: python scripts/make_documents.py [OUT].

Seeded, so that the file can be made again. The documents are what the checks need to see faults:
lengths from a few tokens to more than a sliding window, several turns, rows without any assistant
token, and a set small enough that a few steps wrap an epoch.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable
from pathlib import Path

Message = dict[str, str]
OUT = Path(__file__).parent.parent / "sft" / "documents" / "chats.jsonl"
THINGS = [
    "kettles",
    "ladders",
    "parcels",
    "tickets",
    "lanterns",
    "bricks",
    "apples",
    "buckets",
    "maps",
    "coins",
]
PLACES = ["the harbour", "the workshop", "the north gate", "a small library", "the bakery"]
PEOPLE = ["Ada", "Bruno", "Chidi", "Dara", "Emre", "Farah", "Goran", "Hana", "Ines", "Jonas"]
REMARKS = [
    "Check the result once by doing the sum in the other order.",
    "A drawing helps more than a formula here.",
    "The first estimate is usually too low, so leave some room.",
    "Write the units next to every figure and the mistake shows itself.",
    "If two measurements disagree, repeat the cheaper one.",
    "Most of the time goes into the last part, not the first.",
    "It rained that week, which is why the delivery was late.",
    "Nothing else in the plan depends on this step.",
    "Keep the old version until the new one has run for a night.",
    "Small changes are easier to take back than large ones.",
]


def arithmetic(rng: random.Random) -> tuple[str, str]:
    who, thing, place = rng.choice(PEOPLE), rng.choice(THINGS), rng.choice(PLACES)
    start, more, each = rng.randint(12, 90), rng.randint(3, 40), rng.randint(2, 9)
    question = (
        f"{who} has {start} {thing} at {place} and brings {more} more. "
        f"How many are there, and how many rows of {each} do they fill?"
    )
    total = start + more
    answer = (
        f"There are {start} + {more} = {total} {thing}. "
        f"They fill {total // each} rows of {each}, with {total % each} left over."
    )
    return question, answer


def sorting(rng: random.Random) -> tuple[str, str]:
    numbers = [rng.randint(-50, 500) for _ in range(rng.randint(3, 24))]
    ordered = ", ".join(str(n) for n in sorted(numbers))
    question = f"Sort these and give the largest: {', '.join(map(str, numbers))}."
    return question, f"In order: {ordered}. The largest is {max(numbers)}."


def code(rng: random.Random) -> tuple[str, str]:
    name, thing, factor = (
        rng.choice(("scale", "grow", "repeat")),
        rng.choice(THINGS),
        rng.randint(2, 7),
    )
    question = f"Write a Python function {name} that multiplies the count of {thing} by {factor}."
    answer = (
        f"```python\ndef {name}(count: int) -> int:\n"
        f'    """The count of {thing}, times {factor}."""\n'
        f"    return count * {factor}\n```\n"
        f"For example, {name}({factor + 1}) gives {(factor + 1) * factor}."
    )
    return question, answer


def advice(rng: random.Random, count: int | None = None) -> tuple[str, str]:
    who, place = rng.choice(PEOPLE), rng.choice(PLACES)
    count = count or rng.randint(1, 30)
    question = f"What should {who} keep in mind when moving the {rng.choice(THINGS)} to {place}?"
    picked = [rng.choice(REMARKS) for _ in range(count)]
    return question, f"{who} should plan for {count + 1} trips. " + " ".join(picked)


KINDS: tuple[Callable[[random.Random], tuple[str, str]], ...] = (arithmetic, sorting, code, advice)


def conversation(rng: random.Random) -> list[Message]:
    """One document of 1 to 7 exchanges."""
    messages: list[Message] = []
    if rng.random() < 0.4:
        messages.append({"role": "system", "content": "Answer briefly and show the arithmetic."})
    for _ in range(min(7, int(rng.expovariate(0.9)) + 1)):
        question, answer = rng.choice(KINDS)(rng)
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": answer})
    return messages


def long_conversation(rng: random.Random) -> list[Message]:
    """A document longer than what the indexers of published models keep."""
    messages: list[Message] = []
    for _ in range(5):
        question, answer = advice(rng, count=24)
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": answer})
    return messages


def unanswered(rng: random.Random) -> list[Message]:
    """A long question with no answer: nothing of it is under the loss mask."""
    report = " ".join(rng.choice(REMARKS) for _ in range(150))
    return [
        {"role": "user", "content": f"Here is the whole report from {rng.choice(PLACES)}. {report}"}
    ]


def documents(seed: int = 0, count: int = 40) -> list[list[Message]]:
    """`count` conversations, every twelfth a long one, every sixteenth an unanswered one."""
    rng = random.Random(seed)
    return [kind_of(number)(rng) for number in range(count)]


def kind_of(number: int) -> Callable[[random.Random], list[Message]]:
    """What the document of a number is."""
    if number % 16 == 7:
        return unanswered
    return long_conversation if number % 12 == 3 else conversation


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, nargs="?", default=OUT)
    out = parser.parse_args().out
    lines = (json.dumps({"messages": messages}) for messages in documents())
    out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
