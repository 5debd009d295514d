"""A sweep: what varies between its runs, what they share, what that costs, and the way into the queue."""
