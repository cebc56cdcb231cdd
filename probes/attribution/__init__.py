"""Who owns a character of a prompt, and what of a text is missing from it.

Whoever explains a prompt comes here.
"""
