"""From a request to a queued run, the commands that it gets, and its deletion: what people ask for, with the routes."""
