"""tplaudit: audits chat templates and finds where prompts diverge from the prefix cache."""

__version__ = "0.1.0"
