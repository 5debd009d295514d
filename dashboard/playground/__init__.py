"""The playground: the algorithm in the hand, from typed numbers or from a group that was logged."""
