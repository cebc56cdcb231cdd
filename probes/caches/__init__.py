"""Prefix caches: what a server still holds of earlier prompts, one module per kind of cache."""
