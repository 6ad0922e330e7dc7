"""Special tokens and chat format of an architecture, and the template they make."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

# Ids below this keep their place when the vocabulary shrinks; the rest move to its end.
LOW_IDS = 128

_TEMPLATE = """\
{{%- set headers = {headers} -%}}
{{{{- {start} -}}}}
{{%- for message in messages -%}}
{{%- if message['role'] not in headers -%}}
{{{{- raise_exception('unknown role ' ~ message['role'] ~ ', use one of {roles}') -}}}}
{{%- endif -%}}
{{{{- headers[message['role']] -}}}}
{{%- if message['role'] == 'assistant' -%}}
{{%- generation -%}}{{{{- message['content'] ~ {assistant_end} -}}}}{{%- endgeneration -%}}
{{%- else -%}}
{{{{- message['content'] ~ {end} -}}}}
{{%- endif -%}}
{{%- endfor -%}}
{{%- if add_generation_prompt -%}}{{{{- headers['assistant'] -}}}}{{%- endif -%}}
"""


@dataclass(frozen=True)
class Chat:
    """How an architecture writes a conversation down."""

    specials: Mapping[str, int]
    """Special token -> its id in the published vocabulary."""
    eos: str
    pad: str
    headers: Mapping[str, str]
    """Role -> what stands before its message."""
    bos: str | None = None
    start: str = ""
    """What stands before the first message."""
    end: str = ""
    """What stands after a message that is not the assistant's."""
    assistant_end: str | None = None
    """What the assistant's own tokens end with; `end` if None."""

    def template(self) -> str:
        """The Jinja template, with the assistant's tokens inside `{% generation %}`."""
        ending = self.end if self.assistant_end is None else self.assistant_end
        return _TEMPLATE.format(
            headers=_literal(dict(self.headers)),
            roles=", ".join(self.headers),
            start=_literal(self.start),
            end=_literal(self.end),
            assistant_end=_literal(ending),
        )

    def special_ids(self, vocab_size: int) -> dict[str, int]:
        """Ids of the special tokens in a vocabulary of `vocab_size`, published where they fit."""
        if max(self.specials.values()) < vocab_size:
            return dict(self.specials)
        high = sorted(i for i in self.specials.values() if i >= LOW_IDS)
        moved = {old: vocab_size - len(high) + at for at, old in enumerate(high)}
        return {token: moved.get(i, i) for token, i in self.specials.items()}

    def move(self, ids: object, vocab_size: int) -> object:
        """A published id, or list of ids, in a vocabulary of `vocab_size`."""
        if isinstance(ids, list):
            return [self.move(i, vocab_size) for i in ids]
        places = self.special_ids(vocab_size)
        return next((places[token] for token, old in self.specials.items() if old == ids), ids)


def chatml(specials: Mapping[str, int], eos: str, pad: str, bos: str | None = None) -> Chat:
    """The `<|im_start|>role ... <|im_end|>` format."""
    return Chat(
        specials=specials,
        eos=eos,
        pad=pad,
        bos=bos,
        headers={role: f"<|im_start|>{role}\n" for role in ("system", "user", "assistant", "tool")},
        end="<|im_end|>\n",
    )


def qwen(first: int, eos: str = "<|endoftext|>", bos: str | None = None) -> Chat:
    """The format of the Qwen family, whose special tokens follow each other from id `first`."""
    tokens = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    return chatml({token: first + at for at, token in enumerate(tokens)}, eos, tokens[0], bos)


def glm(first: int) -> Chat:
    """The format of the GLM family, whose special tokens follow each other from id `first`."""
    tokens = ("<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>")
    roles = ("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
    return Chat(
        specials={token: first + at for at, token in enumerate(tokens + roles)},
        eos="<|endoftext|>",
        pad="<|endoftext|>",
        start="[gMASK]<sop>",
        headers={
            "system": "<|system|>\n",
            "user": "<|user|>\n",
            "assistant": "<|assistant|>\n",
            "tool": "<|observation|>\n",
        },
        assistant_end="<|endoftext|>",
    )


def _literal(value: object) -> str:
    # JSON strings and objects are Jinja literals too.
    return json.dumps(value, ensure_ascii=False)
