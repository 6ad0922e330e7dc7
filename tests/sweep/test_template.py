"""Placeholders: known ones are filled in, all other text comes through, a wrong one is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.errors import RequestError
from sweep.schema import Settings
from sweep.trainers import template
from sweep.trainers.base import Launch, train_and_resume
from sweep.trainers.command import CommandConf
from tests.sweep.adapters import case_for

VALUES = {"model": "{steps}", "steps": "5", "lr": ""}
NAMES = st.sampled_from(sorted(VALUES))
TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=60)
BRACED = st.text(alphabet="{}az_ $\n\"'", max_size=40)


def settings(**feature: object) -> Settings:
    return case_for(CommandConf(argv=["true"]), 4, cp=2, arch="llama", **feature)


def escaped(text: str) -> str:
    return re.sub(r"\{([a-z_]+)\}", r"{{\1}}", text)


@given(BRACED)
def test_escaped_text_comes_back_as_it_was(text: str) -> None:
    assert template.fill(escaped(text), VALUES, "here") == text


@given(TEXT.filter(lambda text: not template.PLACEHOLDER.search(text)))
def test_text_without_placeholders_is_unchanged(text: str) -> None:
    assert template.fill(text, VALUES, "here") == text


@given(st.lists(st.tuples(st.text(alphabet="ab {\n", max_size=5), NAMES), max_size=5))
def test_each_placeholder_becomes_its_value_and_values_are_not_filled_again(
    parts: list[tuple[str, str]],
) -> None:
    # an open brace just before a placeholder would be half of an escape
    parts = [(text.rstrip("{"), name) for text, name in parts]
    written = "".join(f"{text}{{{name}}}" for text, name in parts)
    assert template.fill(written, VALUES, "here") == "".join(
        text + VALUES[name] for text, name in parts
    )


@pytest.mark.parametrize(
    "text", ['{"a": {"b": 1}}', "{ lr = 1 }", "${HOME}", "f'{x:.2f}'", "awk '{print $1}'", "{}"]
)
def test_braces_of_other_languages_pass(text: str) -> None:
    assert template.fill(text, VALUES, "here") == text


def test_a_word_that_is_no_placeholder_is_named_with_the_choices() -> None:
    with pytest.raises(
        RequestError, match=r"^trainer\.argv: \{modle\} is no placeholder; write \{\{modle\}\} for"
    ):
        template.fill("--model={modle}", VALUES, "trainer.argv")


def test_values_tell_of_degrees_data_optimizer_and_switches_as_json_spells_them() -> None:
    values = template.values_of(
        settings(compile=True), Launch("train", 1, 8), Path("/out"), Path("/model")
    )
    expected = {
        "dp_shard": "2", "cp": "2", "ep": "1", "world_size": "4", "seq_len": "512",
        "global_batch": "4", "micro_batch": "1", "accumulation": "2", "lr": "0.0001",
        "dtype": "float32", "compile": "true", "fullgraph": "false", "ac": "none", "steps": "8",
        "save_at": "", "resume_from": "", "output_dir": "/out", "model": "/model",
    }  # fmt: skip
    assert {key: values[key] for key in expected} == expected


def test_each_launch_is_told_what_to_save() -> None:
    found = settings(resume_at=[3, 5])
    saves = [
        template.values_of(found, launch, Path(), None, "checkpoint")["save_at"]
        for launch in train_and_resume(found)
    ]
    assert saves == ["3", "5", ""]


def test_a_trainers_own_words_replace_values_whatever_type_yaml_gave_them() -> None:
    values = {"compile": "true", "lr": "0.0001", "save_at": ""}
    spelling = {"compile": {True: "--compile", False: ""}, "save_at": {"": -1}}
    assert template.spelled(values, spelling) == {
        "compile": "--compile",
        "lr": "0.0001",
        "save_at": "-1",
    }
    with pytest.raises(RequestError, match=r"trainer\.spelling\.lrate: no such placeholder"):
        template.spelled(values, {"lrate": {}})
