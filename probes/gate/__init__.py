"""The gate: whether a change of a template fixes what it should and breaks nothing, judged by its prompts.

`gate` is the way in. `observe` finds out what a template does, `compare` what changed.
"""
