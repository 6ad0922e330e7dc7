"""`python -m sweep.calibrate`: thresholds from runs that are right and runs that are broken.

A suite trains both; `populations` finds how far each is from what it must equal, `rule` puts a
threshold between the two kinds, or refuses, and `page` shows them.
"""
