"""Measured rates: seconds of matrix products at a table of row counts, and the bandwidth of the memory."""

from pydantic import BaseModel

from floor.shape import Matrix

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
ACCELERATOR_ROWS = (*ROWS, 2048, 4096, 8192)
PYTORCH, FASTEST = "F.linear", "fastest"

Seconds = dict[str, dict[int, float]]  # matrix name → rows → seconds of one product


class Rates(BaseModel):
    """What was measured in one process. `seconds` has a table for each way to multiply that torch offers here."""

    seconds: dict[str, Seconds]
    bandwidth: float  # bytes a second, the faster of reading and copying

    def of(self, way: str, matrix: Matrix, rows: float) -> float:
        """Seconds of one product at any number of rows: on the straight line between two measured points.

        Above the largest point the rate is that point's.
        """
        table = self.seconds[way][matrix.name]
        most = max(table)
        if rows >= most:
            return table[most] * rows / most
        above = min(point for point in table if point >= rows)
        below = max((point for point in table if point < rows), default=above)
        share = 0.0 if above == below else (rows - below) / (above - below)
        return table[below] + share * (table[above] - table[below])

    def fastest(self) -> "Rates":
        """For each matrix and row count the fastest way: a table of one way, named FASTEST."""
        ways = list(self.seconds.values())
        best = {name: {rows: min(way[name][rows] for way in ways) for rows in ways[0][name]} for name in ways[0]}
        return Rates(seconds={FASTEST: best}, bandwidth=self.bandwidth)
