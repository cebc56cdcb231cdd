"""Why a turn diverges: the comparison with its predecessor, its cause, what the cache did not give back.

`divergence` is the way in, `raised_turn` for turns that a template refused.
"""
