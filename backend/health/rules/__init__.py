"""One rule a file: what it looks at, when it fires, and what it says then."""
