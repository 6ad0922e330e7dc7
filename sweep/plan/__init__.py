"""What to run: the command line's choices and a suite's rows -> an ordered list of cases."""

from sweep.plan.cases import Compose, plan, plan_one, quoted, spelled, varying_keys

__all__ = ["Compose", "plan", "plan_one", "quoted", "spelled", "varying_keys"]
