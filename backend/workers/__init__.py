"""Workers: who asks for work, and when they were last heard of."""
