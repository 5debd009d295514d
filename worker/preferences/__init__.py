"""Training on preference pairs: where the pairs come from, what is learned from them, and the loop."""
