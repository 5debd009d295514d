"""What if: the advantages of logged groups, computed again with other settings, without training."""
