"""What trainers write, read: every format gives the same steps, and no content a crash."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.errors import RequestError
from sweep.facts import Metrics
from sweep.schema import MetricsConf, MetricsFormat
from sweep.trainers import readers
from sweep.trainers.readers import rows

GOOD = '{"step": 1, "loss": 2.5, "grad_norm": 1, "lr": 1e-4, "tokens": 10}'
LOG = MetricsConf(
    format=MetricsFormat.log,
    pattern=r"step:\s*(?P<step>\S+)\s+loss:\s*(?P<loss>\S+)\s+grad_norm:\s*(?P<grad_norm>\S+)",
)
CSV = MetricsConf(format=MetricsFormat.csv)


def read(folder: Path, text: str, conf: MetricsConf | None = None) -> Metrics:
    conf = conf or MetricsConf()
    (folder / readers.PATHS[conf.format]).write_text(text, encoding="utf-8", newline="")
    return readers.read(conf, folder)


class TestJsonLines:
    def test_those_that_are_no_step_are_told_apart_and_the_others_kept(
        self, tmp_path: Path
    ) -> None:
        metrics = read(tmp_path, f'{GOOD}\n\nnot json\n{{"step": 2}}\n{{"step": 3, "lo\n[1]')
        assert [step.step for step in metrics.steps] == [1]
        assert [bad.partition(":")[0] for bad in metrics.bad_lines] == [
            "line 3",
            "line 5",
            "line 6",
            "line 4",
        ]
        assert "line 4: loss: Field required" in metrics.bad_lines[3]

    def test_what_a_trainer_says_beyond_the_known_is_kept(self, tmp_path: Path) -> None:
        step = read(tmp_path, GOOD[:-1] + ', "aux_loss": 0.5}').steps[0]
        assert step.model_dump()["aux_loss"] == 0.5

    def test_a_step_number_that_is_text_is_no_step(self, tmp_path: Path) -> None:
        assert read(tmp_path, GOOD.replace('"step": 1', '"step": "1"')).steps == []

    def test_fields_rename_also_what_is_nested_and_the_counters(self, tmp_path: Path) -> None:
        fields = {"step": "iteration", "loss": "train/loss", "grad_norm": "optim.norm",
                  "counters.ep_tokens_received": "dispatched"}  # fmt: skip
        line = {"iteration": 0, "train/loss": 2.5, "optim": {"norm": 1.5}, "dispatched": [3, 4]}
        conf = MetricsConf(fields=fields, first_step=0)
        step = read(tmp_path, json.dumps(line), conf).steps[0]
        assert (step.step, step.loss, step.grad_norm) == (1, 2.5, 1.5)
        assert step.counters == {"ep_tokens_received": [3, 4]}

    def test_lines_of_one_step_are_one_step_where_asked_for(self, tmp_path: Path) -> None:
        text = '{"step": 1, "loss": 2.0}\n{"step": 1, "grad_norm": 1.0}\n{"step": 1, "mfu": 0.3}\n'
        text += '{"step": 2, "mfu": 0.4}\n{"eval": 1}\n'
        metrics = read(tmp_path, text, MetricsConf(merge="loss"))
        assert [(step.step, step.loss, step.grad_norm) for step in metrics.steps] == [(1, 2.0, 1.0)]
        assert metrics.bad_lines == []

    @given(st.text(max_size=200))
    def test_are_read_whatever_they_hold(self, text: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            metrics = read(Path(folder), text)
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        assert len(metrics.bad_lines) == sum(bool(line.strip()) for line in lines)


class TestTables:
    def test_have_numbers_under_the_names_of_the_header(self, tmp_path: Path) -> None:
        text = "step, loss, grad_norm, tokens, note\n1,2.5,1,10,\n2,nan,inf,10.0,x\n"
        first, second = read(tmp_path, text, CSV).steps
        assert (first.step, first.loss, first.tokens) == (1, 2.5, 10)
        assert "note" not in first.model_dump()
        assert math.isnan(second.loss)
        assert (second.grad_norm, second.tokens) == (math.inf, 10)

    def test_keep_a_digest_that_looks_like_a_number(self, tmp_path: Path) -> None:
        conf = MetricsConf(format=MetricsFormat.csv, fields={"global_batch_digest": "batch"})
        [step] = read(tmp_path, "step,loss,grad_norm,batch\n1,2.5,1,00123e45\n", conf).steps
        assert step.global_batch_digest == "00123e45"

    def test_with_a_half_written_row_give_the_other_rows(self, tmp_path: Path) -> None:
        metrics = read(tmp_path, "step,loss,grad_norm\n1,2.5,1\n2,2.", CSV)
        assert [step.step for step in metrics.steps] == [1]
        assert metrics.bad_lines == ["line 3: 2 cells under 3 names: 2,2."]

    def test_with_a_word_for_a_loss_say_so(self, tmp_path: Path) -> None:
        [bad] = read(tmp_path, "step,loss,grad_norm\n1,high,1\n", CSV).bad_lines
        assert bad.startswith("line 2: loss: Input should be a valid number")

    @given(st.text(max_size=200))
    def test_are_read_whatever_they_hold(self, text: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            assert read(Path(folder), text, CSV).steps == []


class TestLogs:
    def test_are_searched_for_steps_without_their_colours(self, tmp_path: Path) -> None:
        text = "load\n\x1b[32m[rank0] step: 1,000 \x1b[36mloss: 2.5 grad_norm: 1.25\x1b[39m\n\n"
        [step] = read(tmp_path, text, LOG).steps
        assert (step.step, step.loss, step.grad_norm) == (1000, 2.5, 1.25)

    def test_with_a_line_that_matches_and_has_no_figure_say_so(self, tmp_path: Path) -> None:
        [bad] = read(tmp_path, "step: 1 loss: n/a grad_norm: 1\n", LOG).bad_lines
        assert bad.startswith("line 1: loss:")

    @pytest.mark.parametrize(
        ("pattern", "said"),
        [
            (None, "needs one, as in"),
            ("(", "unterminated subpattern"),
            (r"(?P<step>\d+) (?P<norm>\S+)", r"no group \(\?P<loss>"),
        ],
    )
    def test_need_a_pattern_with_a_steps_figures(self, pattern: str | None, said: str) -> None:
        with pytest.raises(RequestError, match=said):
            readers.check(MetricsConf(format=MetricsFormat.log, pattern=pattern))


class TestEventFiles:
    conf = MetricsConf(
        format=MetricsFormat.tensorboard,
        fields={"loss": "loss/train", "grad_norm": "optim/norm"},
        first_step=0,
    )

    def test_give_the_steps_that_have_a_loss(self, tmp_path: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(str(tmp_path / "tb" / "run")) as writer:
            for step in (0, 1):
                writer.add_scalar("loss/train", 2.5 - step, step)
                writer.add_scalar("optim/norm", 1.5, step)
            writer.add_scalar("eval", 9.0, 7)
            writer.add_scalar("loss/train", 1.0, 2)
        metrics = readers.read(self.conf, tmp_path)
        assert [(one.step, one.loss, one.grad_norm) for one in metrics.steps] == [
            (1, 2.5, 1.5),
            (2, 1.5, 1.5),
            (3, 1.0, None),
        ]
        assert metrics.bad_lines == []

    def test_that_are_cut_short_or_none_give_what_there_is(self, tmp_path: Path) -> None:
        assert readers.read(self.conf, tmp_path).steps == []
        (tmp_path / "events.out.tfevents.1.host").write_bytes(b"\x18\0\0\0 torn")
        assert readers.read(self.conf, tmp_path).steps == []

    def test_without_the_package_say_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sweep.trainers.readers.tensorboard.find_spec", lambda name: None)
        with pytest.raises(RequestError, match="pip install tensorboard"):
            readers.check(self.conf)


def test_files_that_match_a_pattern_are_all_read(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.jsonl").write_text(GOOD.replace('"step": 1', f'"step": {rank}'))
    metrics = readers.read(MetricsConf(path="rank*.jsonl"), tmp_path)
    assert [step.step for step in metrics.steps] == [0, 1]


def test_metrics_outside_the_launchs_folder_are_refused() -> None:
    with pytest.raises(RequestError, match="relative to the launch's folder"):
        readers.check(MetricsConf(path="../other/metrics.jsonl"))


def test_a_trainer_that_goes_wild_is_read_as_far_as_is_enough(tmp_path: Path) -> None:
    lines = "".join(f'{{"step": {step}, "loss": 1.0}}\n' for step in range(rows.MOST + 50))
    (tmp_path / "metrics.jsonl").write_text(lines)
    found = readers.read(MetricsConf(), tmp_path)
    assert len(found.steps) == rows.MOST
    assert found.bad_lines == [rows.SURPLUS]


@pytest.mark.parametrize(
    "line",
    [
        '{"step": 1e20, "loss": 1}',
        '{"step": -3000000000, "loss": 1}',
        '{"step": 1, "loss": 1, "tokens": 9223372036854775808}',
    ],
)
def test_a_number_that_no_store_can_keep_is_a_bad_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(line + "\n")
    found = readers.read(MetricsConf(), tmp_path)
    assert found.steps == []
    assert found.bad_lines[0].startswith("line 1: ")


LINES = {
    "jsonl": '{{"step": {n}, "loss": 2.0, "grad_norm": 1.0}}\n',
    "csv": "{n},2.0,1.0\n",
    "log": "step: {n} loss: 2.0 grad_norm: 1.0\n",
}
CONFS = {"jsonl": MetricsConf(), "csv": CSV, "log": LOG}


@pytest.mark.parametrize("name", LINES)
def test_how_far_a_launch_is_costs_the_same_however_long_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    conf, seen = CONFS[name], list[int]()
    path = tmp_path / readers.PATHS[conf.format]
    assert readers.last_step(conf, tmp_path) == 0
    head = "step,loss,grad_norm\n" if name == "csv" else ""
    lines = [LINES[name].format(n=n) for n in range(1, 20_001)]
    path.write_text(head + "".join(lines) + lines[0][:9])  # a line that is being written
    parse = readers.PARSERS[conf.format]

    def counted(text: str, conf: MetricsConf) -> Metrics:
        seen.append(len(text))
        return parse(text, conf)

    monkeypatch.setitem(readers.PARSERS, conf.format, counted)
    assert readers.last_step(conf, tmp_path) == 20_000
    assert max(seen) < 70_000 < path.stat().st_size
    path.write_text(head + lines[0])
    assert readers.last_step(conf, tmp_path) == 1
