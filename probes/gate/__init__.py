"""The gate: whether a change of a template fixes what it should and breaks nothing, told from behaviour."""
