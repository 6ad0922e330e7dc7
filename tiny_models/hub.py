"""What needs the hub: comparing the published configurations, and the published tokenizers.

Nothing here runs unless the user asks for it, and no code from the hub is ever run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import TinyModelError
from .model import TinyModel
from .registry import get, names

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase

# Facts about a file rather than about the architecture.
NOT_COMPARED = {
    "_name_or_path",
    "architectures",
    "auto_map",
    "dtype",
    "quantization_config",
    "torch_dtype",
    "transformers_version",
    "use_cache",
}


class UnreadableError(Exception):
    """The hub did not deliver a file; the message says why."""


class UnreachableError(UnreadableError):
    """The hub cannot be reached, so no further file is tried."""


def check_published(only: list[str]) -> int:
    """Print how each published configuration compares with the hub's.

    Returns 0 if all are the same, 1 if one differs, 3 if none differs but one could not be read.
    """
    codes = []
    offline = None  # else thirteen files would each wait for the same time-outs
    for model in [get(name) for name in only or names()]:
        try:
            codes.append(_report(model, offline))
        except UnreadableError as error:
            offline = str(error) if isinstance(error, UnreachableError) else offline
            print(f"{model.name}: NOT COMPARED with {_where(model)}: {error}")
            codes.append(3)
    return 1 if 1 in codes else max(codes)


def differences(model: TinyModel, theirs: dict[str, Any]) -> list[str]:
    """One line for each value in which the hub's `config.json`, read as `theirs`, is not ours.

    Both are read by transformers' class first, so that an older spelling of a value is no
    difference. Raises ValueError if the class does not take `theirs`.
    """
    ours_values = _comparable(model.published_config())
    theirs_values = _comparable(_as_config(model, theirs))
    keys = sorted(set(ours_values) & set(theirs_values))
    return [
        f"{key}: {ours_values[key]!r} here, {theirs_values[key]!r} on the hub"
        for key in keys
        if ours_values[key] != theirs_values[key]
    ]


def published_tokenizer(model: TinyModel, vocab_size: int) -> PreTrainedTokenizerBase:
    """The published tokenizer with this package's chat template, which marks the assistant.

    TinyModelError if the hub is out of reach or the tokenizer does not fit the vocabulary.
    """
    from transformers import AutoTokenizer

    repository = model.source.readable
    if vocab_size < model.published["vocab_size"]:
        raise TinyModelError(
            f"the published tokenizer of {model.name} does not fit a vocabulary of {vocab_size}: "
            "use --scale tiny with --published-tokenizer"
        )
    try:
        words = AutoTokenizer.from_pretrained(repository, revision=model.source.revision)
    except Exception as error:  # each layer below raises its own
        raise TinyModelError(
            f"cannot read the tokenizer of {repository} from the hub ({_reason(error)}): "
            "leave out --published-tokenizer to use the built-in one"
        ) from error
    words.chat_template = model.chat.template()
    return words


def _report(model: TinyModel, offline: str | None) -> int:
    if offline is not None:
        raise UnreachableError(offline)
    try:
        differing = differences(model, _fetch(model))
    except (TypeError, ValueError) as error:
        differing = [f"not a configuration that transformers reads as one ({_reason(error)})"]
    if not differing:
        print(f"{model.name}: same as {_where(model)}")
        return 0
    for line in differing:
        print(f"{model.name}: DIFFERS from {_where(model)}, {line}")
    return 1


def _where(model: TinyModel) -> str:
    return f"{model.source.readable}@{model.source.revision}"


def _fetch(model: TinyModel) -> dict[str, Any]:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import LocalEntryNotFoundError
    from huggingface_hub.utils import logging

    logging.set_verbosity_error()  # else it prints each attempt
    try:
        path = hf_hub_download(model.source.readable, "config.json", revision=model.source.revision)
    except LocalEntryNotFoundError as error:
        raise UnreachableError("the hub could not be reached, try again when it can") from error
    except Exception as error:
        raise UnreadableError(_reason(error)) from error
    published = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(published, dict):
        raise TypeError("not a JSON object")
    return published


def _as_config(model: TinyModel, theirs: dict[str, Any]) -> PreTrainedConfig:
    from transformers import AutoConfig

    text = theirs.get("text_config", theirs)
    values = {key: value for key, value in text.items() if key != "model_type"}
    # What a class would name differently by itself must not hide a difference in kind.
    if text.get("model_type") != model.model_type:
        raise ValueError(f"model_type is {text.get('model_type')!r}, not {model.model_type!r}")
    try:
        return AutoConfig.for_model(model.model_type, **values)
    except Exception as error:  # validation has errors of its own
        raise ValueError(_reason(error)) from error


def _comparable(config: PreTrainedConfig) -> dict[str, Any]:
    # Through JSON, so that tuples and lists are the same.
    values = json.loads(json.dumps(config.to_dict(), default=str))
    return {key: value for key, value in values.items() if key not in NOT_COMPARED}


def _reason(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."
