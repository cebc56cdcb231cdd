"""The replay: request, policy, prompt, cache, cost, turn, report.

`replay` is the way in, `jobs` for several processes.
"""
