"""What an algorithm's parts mean: estimators, surrogates and rewards in words and numbers, and a step computed again."""
