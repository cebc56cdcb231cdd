"""What a template does with the reasoning of earlier turns: its behaviour, its variables, the findings.

`thinking` is the way in.
"""
