"""What to run: the command line's choices and a suite's rows -> an ordered list of cases."""

from sweep.plan.cases import Compose, plan, plan_one, varying_keys
from sweep.plan.spelling import quoted, spelled

__all__ = ["Compose", "plan", "plan_one", "quoted", "spelled", "varying_keys"]
