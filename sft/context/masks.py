"""Masks built by transformers, from the whole sequence's positions.

A model builds its masks from the tokens it is given, which under context parallelism are a slice,
and gpt_oss does not hand its positions on at all (documents of a pack then see each other). So
every mask function a modeling module uses is wrapped to see the whole sequence. Where
transformers looks for documents we do: for a row of one it would make another kind of mask.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch import Tensor
from transformers import masking_utils

from sft.context.replace import replace
from sft.context.sequence import Sequence, active, document_ids


def install(modeling: ModuleType) -> list[str]:
    """Wrap the mask functions that a modeling module imported; returns their names."""
    replace(masking_utils, "find_packed_sequence_indices", _documents)
    names = [name for name in vars(modeling) if _takes_positions(name)]
    for name in names:
        setattr(modeling, name, _over_whole_sequence(getattr(masking_utils, name)))
    return names


def _documents(sequence: Sequence, position_ids: Tensor) -> Tensor:
    return document_ids(position_ids)


def _takes_positions(name: str) -> bool:
    function = getattr(masking_utils, name, None)
    return (
        name.startswith("create_")
        and callable(function)
        and "position_ids" in inspect.signature(function).parameters
    )


def _over_whole_sequence(create_mask: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(create_mask)

    @functools.wraps(create_mask)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments
        sequence = active()
        if sequence is not None and not isinstance(arguments.get("attention_mask"), Tensor):
            arguments |= _whole(sequence, arguments["inputs_embeds"], signature)
        return create_mask(**arguments)

    return wrapper


def _whole(sequence: Sequence, embeds: Tensor, signature: inspect.Signature) -> dict[str, Any]:
    positions = sequence.position_ids
    whole: dict[str, Any] = {
        # only its batch, length, dtype and device are read
        "inputs_embeds": embeds.new_empty(1).expand(*positions.shape, 1),
        "position_ids": positions,
    }
    if "allow_is_causal_skip" in signature.parameters:
        # one code path for packs of one and of many documents
        whole["allow_is_causal_skip"] = False
    return whole
