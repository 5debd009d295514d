"""The mathematics of GRPO: small pure functions over the array API. They run on numpy and, with gradients, on torch."""
