"""Why two prompts diverge: hypotheses in a fixed order, each proved by a counterfactual render.

`registry` is the way in.
"""
