"""The capability probe: where a system turn may stand, and what servers make of it.

`report` is the way in for one template, `sweep` for several.
"""
