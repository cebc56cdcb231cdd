"""What a server said that it reused, beside what is counted: its log, the agreement, and what fits best.

A replay asks for the agreement, the command line for a log and a ranking.
"""
