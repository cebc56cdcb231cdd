"""The output formats of the gate."""
