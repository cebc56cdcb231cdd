"""What one version of a template does: system turns, reasoning, prompts, replays."""
