"""What a prefill takes: measured, fitted, and predicted from that."""
