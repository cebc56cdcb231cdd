"""Prefix caches: what a server gives back of earlier prompts, by blocks, sequences or checkpoints.

`registry` makes them by name; `servers` has one module for each server with rules of its own.
"""
