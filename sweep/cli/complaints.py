"""What Hydra and OmegaConf say of a wrong request, as one line that names the next step."""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Iterable

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from sweep.errors import RequestError
from sweep.files import ConfDirs

EXAMPLE = "python -m sweep arch=llama layout=single"

KEY_ERRORS = (ConfigAttributeError, ConfigKeyError)
_FOR_DEVELOPERS = ("full_key", "object_type", "reference_type")


def one_line(error: BaseException, conf: ConfDirs) -> str | None:
    """The complaint; None if the error is not about the request but a fault of ours."""
    if isinstance(error, RequestError):
        return str(error)
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        choices = ", ".join(sorted(error.options))
        degrees = ", or say degrees, as fsdp4_ep1" if group == "layout" else ""
        hint = _near(name, error.options)
        return f"{group}={name}: no such {group};{hint} choose from {choices}{degrees}"
    if isinstance(error, OverrideParseException):
        return f"{error.override}: not understood: {_without_link(_flat(error, conf))}"
    if isinstance(error, (HydraException, OmegaConfBaseException)):
        return _flat(error, conf)
    if isinstance(error, UnicodeDecodeError):
        path = _loaded(error)
        return path and f"{path}: no UTF-8 text: {error.reason} at byte {error.start}"
    is_theirs = _raised_by(error) in ("hydra", "omegaconf", "yaml")
    return _flat(error, conf) if is_theirs and isinstance(error, Exception) else None


def _raised_by(error: BaseException) -> str:
    """The library whose code raised it: Hydra checks some of a request with plain exceptions."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    name = str(frames[-1].f_globals.get("__name__", "")) if frames else ""
    return name.partition(".")[0]


def _loaded(error: BaseException) -> str | None:
    """The file of the configuration that Hydra was reading."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next(
        (
            str(frame.f_locals["full_path"])
            for frame in reversed(frames)
            if "full_path" in frame.f_locals
        ),
        None,
    )


def _without_link(text: str) -> str:
    return re.sub(r" See https://hydra\S+ for details", "", text)


def _flat(error: BaseException, conf: ConfDirs) -> str:
    text = str(error)
    if "Ambiguous value for argument" in text or "requires --multirun" in text:
        first = text.splitlines()[0]
        return f"{first}: several values need -m (python -m sweep -m ...)"
    if match := re.search(r"You must specify '([^']+)'", text):
        choices = ", ".join(line.strip() for line in text.splitlines() if line.startswith("\t"))
        return f"{match[1]}=...: missing; choose from {choices}; as in: {EXAMPLE}"
    if match := re.search(r"Could not override '([^']+)'\.\nTo append", text):
        return _no_setting(match[1], error.__cause__)
    if match := re.search(r"missing mandatory value.*full_key: (\S+)", text, re.S):
        group = conf.shipped / match[1].partition(".")[0]
        return f"{match[1]}=...: missing; {group}/ says what it is"
    if match := re.search(r"In '([^']+)': \w+ raised while composing config:\n(.*)", text, re.S):
        return f"{conf.files(f'{match[1]}.yaml')[-1]}: {_of_file(error.__context__, match[2])}"
    cause = f": {_sentence(str(error.__cause__))}" if error.__cause__ else ""
    return _sentence(text) + cause


def _of_file(error: BaseException | None, text: str) -> str:
    if isinstance(error, KEY_ERRORS) and error.full_key:
        return _no_setting(error.full_key, error)
    return _sentence(text)


def _no_setting(key: str, error: BaseException | None) -> str:
    """That there is no such key where `error` looked for it, and which there are."""
    if isinstance(error, KEY_ERRORS) and error.full_key:
        key = error.full_key
    within, dot, name = key.rpartition(".")
    parent = error.parent_node if isinstance(error, KEY_ERRORS) else None
    known = [str(key) for key in parent or () if key not in (None, "hydra", "_target_")]
    near = _near(name, known, within + dot)
    if within == "hydra.launcher" and not near:
        near = _near(name, _of_slurm(), "hydra/launcher=slurm hydra.launcher.")
    if not within or not known:
        return f"there is no setting {key};{near} {EXAMPLE} --cfg job shows all"
    return f"there is no setting {key};{near} {within} has {', '.join(known)}"


def _of_slurm() -> list[str]:
    from hydra.core.config_store import ConfigStore

    return [str(key) for key in ConfigStore.instance().load("hydra/launcher/sweep_slurm.yaml").node]


def _near(name: str, known: Iterable[str], before: str = "") -> str:
    """What was meant, if something is near."""
    near = difflib.get_close_matches(name, known, 1)
    return f" did you mean {before}{near[0]}?" if near else ""


def _sentence(text: str) -> str:
    """OmegaConf's message and the key it is about; its other lines are for its developers."""
    lines = [line.strip() for line in text.strip().splitlines()]
    keys = [line.partition(":")[2].strip() for line in lines if line.startswith("full_key:")]
    key = keys[0] if keys else ""
    kept = [line for line in lines if not line.startswith(_FOR_DEVELOPERS)]
    said = " ".join(filter(None, kept))
    return f"{said} (key {key})" if key else said
