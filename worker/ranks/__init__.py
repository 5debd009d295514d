"""One run in several processes: who does what, weights in shards, and how the processes are started."""
