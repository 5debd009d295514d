"""The policy: finding and loading models, adapters, and the log-probabilities that training rests on."""
