"""Moving, noting and joining the messages of a request, with the provenance of each character."""
