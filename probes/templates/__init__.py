"""A template's source, and rendering it: Jinja set up as transformers sets it up, in a process of its own.

Everybody may come in to have a template rendered or read; nobody renders one elsewhere.
"""
