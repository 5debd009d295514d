"""What a form offers: recipes, models, and the JSON Schema of a configuration."""
