"""The form of a run: JSON Schema -> fields -> widgets, over one plain dict that everything else may replace at once."""
