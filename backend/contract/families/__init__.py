"""The recipes, family by family."""
