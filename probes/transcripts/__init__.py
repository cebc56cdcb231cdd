"""Recorded requests: how they are read and checked, in three dialects.

`open_transcript` of `reader` is the way in; `sources` has one reader for each format.
"""
