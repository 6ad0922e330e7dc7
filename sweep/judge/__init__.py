"""What facts mean: one verdict over the findings of a case, and a whole sweep judged at its end.

`python -m sweep.judge` judges a recorded sweep again.
"""

from sweep.judge.verdict import Judgement, Verdict, judge, ready, unavailable

__all__ = ["Judgement", "Verdict", "judge", "ready", "unavailable"]
