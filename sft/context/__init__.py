"""Context parallelism: each rank of a group holds a slice of every sequence.

`sequence` says what the whole sequence looks like, `exchange` moves slices between ranks (heads for
sequence, as in DeepSpeed Ulysses, arXiv:2309.14509), and there is one file for each kind of layer
that looks beyond its own tokens.
"""
