"""Results -> MLflow runs, and back. Nothing here imports MLflow before it is used."""

from sweep.store.ending import End
from sweep.store.location import Location
from sweep.store.reader import Reader
from sweep.store.records import CaseRecord, SweepRecord
from sweep.store.writer import Writer

__all__ = ["CaseRecord", "End", "Location", "Reader", "SweepRecord", "Writer"]
