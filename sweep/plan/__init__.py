"""What to run: the command line's choices and a suite's rows -> an ordered list of cases."""

from sweep.plan.cases import Compose, checked, plan, plan_one, resolved, varying_keys
from sweep.plan.spelling import quoted, spelled

__all__ = [
    "Compose", "checked", "plan", "plan_one", "quoted", "resolved", "spelled", "varying_keys",
]  # fmt: skip
