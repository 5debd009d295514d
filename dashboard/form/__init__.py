"""The form of a run: pydantic model -> fields -> widgets, over one plain dict that everything else may replace at once."""
