"""Findings -> one verdict for each case. `python -m sweep.judge` judges a recorded sweep again."""

from sweep.judge.verdict import Judgement, Verdict, judge, ready, unavailable, unreadable

__all__ = ["Judgement", "Verdict", "judge", "ready", "unavailable", "unreadable"]
