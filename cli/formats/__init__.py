"""One module per output format: a report value in, text out."""
