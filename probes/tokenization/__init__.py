"""Tokenizers out of files, and the token ids of prompts, exact and incremental.

Whoever counts tokens comes here.
"""
