"""What runs in the process that templates are confined to: Jinja, and all that parses, folds and renders.

Nobody comes in: `python -m tplaudit.probes.templates.worker` is the only way (renderer.py starts it).
"""
