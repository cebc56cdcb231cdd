"""One module for each format that transcripts come in."""
