"""mlx-lm: the model, the states of its cache, and real prefills.

The only room that imports mlx.
"""
