"""The caches of single servers."""
