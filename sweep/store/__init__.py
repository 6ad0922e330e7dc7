"""Results -> MLflow runs, and back. Nothing here imports MLflow before it is used."""

from sweep.store.location import Location
from sweep.store.reader import CaseRecord, Reader, SweepRecord
from sweep.store.recorder import End
from sweep.store.writer import Writer

__all__ = ["CaseRecord", "End", "Location", "Reader", "SweepRecord", "Writer"]
