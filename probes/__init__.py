"""What is measured: conversations, templates, policies, tokens, caches and divergence."""
