"""What `--model` names: a directory, a GGUF file, a hub id; its config, and what there is to count and run.

Nothing here runs a model: that is `engine`.
"""
