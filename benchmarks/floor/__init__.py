"""The floor: how fast this machine could do a step at best, from counted operations and measured rates."""
