"""`TinyModel`: one architecture, as published and in smaller scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from .chat import Chat
from .errors import TinyModelError
from .reduction import leading_layers, same_spread

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

Scale = Literal["tiny", "nano"]
SCALES: tuple[Scale, ...] = get_args(Scale)
_TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


@dataclass(frozen=True)
class Source:
    """Where the published values of an architecture come from."""

    repository: str
    """The model repository on the hub that publishes them."""
    origin: str
    """Their source: a copy of the file, the class defaults of transformers X, or recall."""
    revision: str = "main"
    ungated: str | None = None
    """A public copy of `repository`, if that is gated."""

    @property
    def readable(self) -> str:
        """The repository to read files from."""
        return self.ungated or self.repository


@dataclass(frozen=True)
class TinyModel:
    """An architecture: published configuration, the rule that shrinks it, and its chat format."""

    name: str
    model_type: str
    """The `model_type` of its text configuration in transformers."""
    source: Source
    published: Mapping[str, Any]
    tiny: Mapping[str, Any]
    """What `tiny` changes besides cutting layers."""
    nano: Mapping[str, Any]
    """What `nano` changes besides cutting layers."""
    chat: Chat
    nano_layers: int = 1
    """Fewest layers at `nano`; two where one kind of layer is all there is."""
    document_tokens: Mapping[str, int] = field(default_factory=dict)
    """Scale -> document length from which an indexer drops keys for 60% of query tokens."""

    def published_config(self) -> PreTrainedConfig:
        """The configuration as released; builds no weights."""
        return self._build(dict(self.published))

    def config(self, scale: str) -> PreTrainedConfig:
        """The configuration at `tiny` or `nano`; TinyModelError for another scale."""
        scale = check_scale(scale)
        changes = self.tiny if scale == "tiny" else self.nano
        at_least = self.nano_layers if scale == "nano" else 1
        full = self.published_config()
        cut, replaced = leading_layers(full, at_least)
        values = {key: value for key, value in self.published.items() if key not in replaced}
        values |= cut | dict(changes)
        if scale == "nano":
            values["initializer_range"] = same_spread(full, values["hidden_size"])
        return self._build(values)

    def _build(self, values: dict[str, Any]) -> PreTrainedConfig:
        from transformers import AutoConfig

        vocab_size = values["vocab_size"]
        for key in _TOKEN_IDS:
            if values.get(key) is not None:
                values[key] = self.chat.move(values[key], vocab_size)
        return cast("PreTrainedConfig", AutoConfig.for_model(self.model_type, **values))


def check_scale(scale: str) -> Scale:
    """`scale` if it exists; else raises TinyModelError."""
    if scale not in SCALES:
        raise TinyModelError(f"unknown scale {scale!r}: choose one of {', '.join(SCALES)}")
    return scale
