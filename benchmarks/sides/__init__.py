"""The two sides of a comparison: processes that stay alive and train one step on request."""
