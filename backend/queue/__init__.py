"""The queue: claims, leases, attempts, and the sweep that settles what nobody holds."""
