"""The driving process of a sweep: follows the jobs, records, judges, and ends what is left."""
