"""Layouts by the names that case ids have, as `layout=fsdp8_ep4`, also without a file."""

from pathlib import Path
from typing import Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

SCHEME = "layouts"
GROUP = "layout/"


class LayoutSearchPath(SearchPathPlugin):
    """Adds the names behind the files of `conf/`; other Hydra programs never see them."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append the source if `conf/` is searched."""
        from sweep.files import conf_dir

        paths = [str(element.path) for element in search_path.get_path()]
        if any(Path(path.removeprefix("file://")) == conf_dir() for path in paths):
            search_path.append("sweep", f"{SCHEME}://")


class LayoutSource(ConfigSource):
    """The degrees that a layout's name says. Lists nothing: the names have no end."""

    @staticmethod
    def scheme() -> str:
        """Of this source's path."""
        return SCHEME

    def available(self) -> bool:
        """Always."""
        return True

    def is_group(self, config_path: str) -> bool:
        """Never."""
        return False

    def is_config(self, config_path: str) -> bool:
        """Whether it is the name of a layout."""
        return _degrees(config_path) is not None

    def list(self, config_path: str, results_filter: Any) -> list[str]:
        """Nothing."""
        return []

    def load_config(self, config_path: str) -> ConfigResult:
        """The layout, as its file would have it."""
        return ConfigResult(
            provider=self.provider, path=self.full_path(), header={"package": None},
            config=OmegaConf.create(_degrees(config_path)),
        )  # fmt: skip


def _degrees(config_path: str) -> dict[str, int] | None:
    from dataclasses import asdict

    from sweep.case.labels import layout_named

    if not config_path.startswith(GROUP):
        return None
    layout = layout_named(config_path.removeprefix(GROUP).removesuffix(".yaml"))
    return None if layout is None else asdict(layout)
