"""One module for each server, and what only one family of servers does."""
