"""Which properties go with the reward within groups: effects, their intervals, and a correction for the number of properties.

Completions are (N,), properties (N, K); axes end the names. A completion is compared with those of its own group only: reward and
property are taken from their means over the group, so that easy and hard prompts, or long and short ones, say nothing. What
chance does is seen by permuting rewards within groups, equal texts (M of them) as one: completions may be copies of each other.
What groups of a prompt have in common counts once: their cluster is all of them, or a group if there are few prompts. See
docs/algorithms.md.
"""

import math
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Squares = tuple[Floats, Floats, Floats]
"""Of each property (K,): s², s q and q², where s is its product with the reward and q its square, summed in some way."""

LEVEL = 0.05
DRAWS = 1999
LEAST = 12
"""Clusters that a property must differ in, as it were in equal parts, before anything is said about it."""
TOGETHER = 0.95
"""Properties whose correlation within groups is larger, in size, cannot be separated."""
_ROUNDING = 1e-9  # of the largest value: differences below it are rounding
_NORMAL = 1.959964  # of the central 95 % of the normal distribution
_UNSHARED = (
    2**18
)  # multiplications at once: BLAS does no more without its other threads, which wait for each other on a busy machine


@dataclass(frozen=True)
class Centred:
    """Rewards and properties without their groups' means. A property that is missing (NaN) has 0 here, and counts nowhere."""

    # over the completions that have property k, in units of `unit`: squares of large floats are infinite
    rewards_N_K: Floats
    properties_N_K: Floats
    groups_N: Ints
    clusters_N: Ints
    unit: float
    whole_N: Floats  # the rewards as they are permuted, in the same unit, with their groups' means; NaN: unknown
    texts_N: Ints  # equal in a group: equal texts

    def by_cluster(self, values_N_K: Floats) -> Floats:
        """The sums of each cluster, (C, K)."""
        return _sums(values_N_K, self.clusters_N)

    def beside(self, lead: int) -> "Centred":
        """What remains of rewards and properties where property `lead` has been accounted for, in a straight line."""
        lead_N = self.properties_N_K[:, lead]
        squares = float(lead_N @ lead_N)
        slopes_K = lead_N @ self.properties_N_K / squares
        slope = float(lead_N @ self.rewards_N_K[:, lead]) / squares
        properties_N_K = self.properties_N_K - lead_N[:, None] * slopes_K
        # what was the lead in other words is nothing but rounding now
        rest_K = (properties_N_K**2).sum(axis=0) / np.maximum((self.properties_N_K**2).sum(axis=0), 1e-300)
        properties_N_K[:, rest_K < 1 - TOGETHER**2] = 0.0
        rewards_N_K = self.rewards_N_K - lead_N[:, None] * slope
        whole_N = self.whole_N - lead_N * slope
        return Centred(rewards_N_K, properties_N_K, self.groups_N, self.clusters_N, self.unit, whole_N, self.texts_N)


@dataclass(frozen=True)
class Association:
    """Of each property, (K,). NaN where a property does not differ in enough clusters, or has no bound.

    `effect_K` is the change of the reward with one unit of the property, `low_K` to `high_K` its interval: all intervals of a table hold
    together with a probability of 95 %. `p_K` is corrected in the same way. `spread_K` is the property's std within groups.
    """

    effect_K: Floats
    low_K: Floats
    high_K: Floats
    p_K: Floats
    correlation_K: Floats
    spread_K: Floats
    clusters_K: Floats  # in which it differs, as it were in equal parts: (Σq)² / Σq²
    tested_K: Bools
    critical: float

    @property
    def clear_K(self) -> Bools:
        """Whether the property goes with the reward, beyond what chance does in one table of twenty."""
        return self.tested_K & (self.p_K <= LEVEL)


def centred(
    rewards_N: Floats, properties_N_K: Floats, groups_N: Ints, clusters_N: Ints, texts_N: Ints | None = None
) -> Centred:
    """Both without their groups' means; NaN in either leaves the completion out, of that property alone if it is the property's.

    `texts_N` is equal where two completions of a group have one text; by default each has its own.
    """
    known_N_K = np.isfinite(properties_N_K) & np.isfinite(rewards_N)[:, None]
    values_N_K = np.where(known_N_K, properties_N_K, 0.0)
    unit = size_of(rewards_N)
    whole_N = np.where(np.isfinite(rewards_N), rewards_N / unit, np.nan)
    rewards_N_K = np.where(known_N_K, whole_N[:, None], 0.0)
    count_P_K = np.maximum(_sums(known_N_K.astype(float), groups_N), 1.0)

    def within(each_N_K: Floats) -> Floats:
        means_P_K = _sums(each_N_K, groups_N) / count_P_K
        return np.where(known_N_K, each_N_K - means_P_K[groups_N], 0.0)

    texts_N = np.arange(len(groups_N)) if texts_N is None else texts_N
    return Centred(within(rewards_N_K), within(values_N_K), groups_N, clusters_N, unit, whole_N, texts_N)


@dataclass(frozen=True)
class _Texts:
    """The M different texts of all groups, a group's together: what a permutation moves. The reward of a text is its mean."""

    rewards_M: Floats  # less their group's mean over texts; the values, too
    values_M_K: Floats  # of the properties
    sums_M_K: Floats  # of the centred properties, over the completions with this text
    groups_M: Ints
    clusters_M: Ints

    @classmethod
    def of(cls, data: Centred) -> "_Texts":
        """Those with a known reward."""
        known_N = np.isfinite(data.whole_N)
        groups_N, texts_N = data.groups_N[known_N], data.texts_N[known_N]
        names_N = groups_N * (texts_N.max(initial=0) + 1) + texts_N
        _, first_M, places_N = np.unique(names_N, return_index=True, return_inverse=True)
        groups_M, columns = groups_N[first_M], [data.whole_N[known_N][:, None], data.properties_N_K[known_N]]
        sums_M_K = _sums(np.hstack(columns), places_N)
        each_M_K = sums_M_K / np.bincount(places_N)[:, None]
        each_M_K -= (_sums(each_M_K, groups_M) / np.maximum(np.bincount(groups_M), 1)[:, None])[groups_M]
        clusters_M = data.clusters_N[known_N][first_M]
        return cls(each_M_K[:, 0], each_M_K[:, 1:], sums_M_K[:, 1:], groups_M, clusters_M)

    def variances(self) -> Squares:
        """Of Σ property × reward over all permutations; the last two with the property in the reward's place, once and twice."""
        spread_P_K = _sums(self.sums_M_K**2, self.groups_M) / np.maximum(np.bincount(self.groups_M) - 1, 1)[:, None]
        rewards_M_1, values_M_K = self.rewards_M[:, None], self.values_M_K
        products = (rewards_M_1**2, rewards_M_1 * values_M_K, values_M_K**2)
        rr_K, rx_K, xx_K = ((spread_P_K * _sums(each, self.groups_M)).sum(axis=0) for each in products)
        return rr_K, rx_K, xx_K

    def largest(self, tested_K: Bools, random: np.random.Generator, draws: int) -> Floats:
        """The largest statistic of the tested properties under each permutation of rewards within groups. (B,)"""
        scaled_M_K = self.sums_M_K[:, tested_K] / np.sqrt(self.variances()[0][tested_K])
        order_M = np.lexsort((self.groups_M, self.clusters_M))
        members_P = np.split(order_M, np.flatnonzero(np.diff(self.groups_M[order_M])) + 1)
        clusters = [list(of) for _, of in groupby(members_P, key=lambda one: self.clusters_M[one[:1]].tolist())]
        at_once = max(1, _UNSHARED // max(1, max(map(len, members_P)) * scaled_M_K.shape[1]))
        largest_B: list[Floats] = [np.zeros(0)]
        for start in range(0, draws, at_once):
            count = min(at_once, draws - start)
            sums_B_K, squares_B_K = np.zeros((2, count, scaled_M_K.shape[1]))
            for groups in clusters:
                drawn = (random.permuted(np.tile(self.rewards_M[one], (count, 1)), axis=1) for one in groups)
                of_B_K = sum(each_B_M @ scaled_M_K[one] for each_B_M, one in zip(drawn, groups, strict=True))
                sums_B_K += of_B_K
                squares_B_K += of_B_K**2
            t_B_K = np.abs(sums_B_K) / np.sqrt(np.maximum(squares_B_K, 1.0))
            largest_B.append(t_B_K.max(axis=1, initial=0.0))
        return np.concatenate(largest_B)


def associate(
    data: Centred, random: np.random.Generator, *, draws: int = DRAWS, critical: float | None = None
) -> Association:
    """The association of each property with the reward.

    A statistic is the sum of property × reward, in its standard deviations over permutations of rewards within groups, or by the
    spread of its clusters where that is larger. The 95 % point of the largest of all properties under such permutations is the
    critical value (max-T, Westfall & Young 1993). An interval holds the effects that this very test does not refuse. With a
    `critical` value given, nothing is drawn, and `p_K` is NaN.
    """
    # what a cluster says of an association, and how much it can say
    s_C_K = data.by_cluster(data.properties_N_K * data.rewards_N_K)
    texts, q_C_K = _Texts.of(data), data.by_cluster(data.properties_N_K**2)
    s_K, q_K, variance_K = s_C_K.sum(axis=0), q_C_K.sum(axis=0), (data.rewards_N_K**2).sum(axis=0)
    by_chance = texts.variances()
    of_clusters = ((s_C_K**2).sum(axis=0), (s_C_K * q_C_K).sum(axis=0), (q_C_K**2).sum(axis=0))
    with np.errstate(divide="ignore", invalid="ignore"):
        clusters_K = np.where(q_K > 0, q_K**2 / of_clusters[2], 0.0)
        t_K = np.abs(s_K) / np.sqrt(np.maximum(of_clusters[0], by_chance[0]))
    tested_K = (clusters_K >= LEAST) & (by_chance[0] > 0)
    p_K = np.full(len(q_K), np.nan)
    if critical is None:
        largest_B = texts.largest(tested_K, random, draws)
        place = min(draws - 1, math.ceil((1 - LEVEL) * (draws + 1)) - 1)
        critical = float(np.sort(largest_B)[place]) if draws else 0.0
        # as large up to rounding is as large: with few groups the draws repeat what was observed
        exceeding_K = (largest_B[:, None] >= t_K[tested_K] * (1 - 1e-9)).sum(axis=0)
        p_K[tested_K] = (1 + exceeding_K) / (draws + 1)
    # of both the widest; with the effect, beyond which rounding may put an end
    (low_K, high_K), (least_K, most_K) = (_interval(s_K, q_K, each, critical) for each in (of_clusters, by_chance))
    with np.errstate(divide="ignore", invalid="ignore"):
        effect_K = s_K / q_K
        correlation_K = np.clip(s_K / np.sqrt(q_K * variance_K), -1.0, 1.0)  # rounding may put it beyond
    degrees = len(data.groups_N) - len(np.unique(data.groups_N))

    def known(each_K: Floats) -> Floats:
        return np.where(tested_K, each_K, np.nan)

    return Association(
        effect_K=known(bounded(effect_K, data.unit)),
        low_K=known(bounded(np.minimum.reduce([low_K, least_K, effect_K]), data.unit)),
        high_K=known(bounded(np.maximum.reduce([high_K, most_K, effect_K]), data.unit)),
        p_K=known(p_K),
        correlation_K=known(correlation_K),
        spread_K=np.sqrt(q_K / max(1, degrees)),
        clusters_K=clusters_K,
        tested_K=tested_K,
        critical=critical,
    )


def pointwise(data: Centred) -> Association:
    """The same without a correction, for a curve: each interval by itself holds with 95 %."""
    return associate(data, np.random.default_rng(0), draws=0, critical=_NORMAL)


def correlations(data: Centred) -> Floats:
    """How properties go with each other within groups, (K, K); 0 where one does not differ."""
    norms_K = np.sqrt((data.properties_N_K**2).sum(axis=0))
    safe_K = np.where(norms_K > 0, norms_K, 1.0)
    scaled_N_K = data.properties_N_K / safe_K
    return scaled_N_K.T @ scaled_N_K


def bounded(values_K: Floats, unit: float) -> Floats:
    """Their products with `unit` > 0; in place of infinity, which no answer can hold, the largest float."""
    most = np.finfo(np.float64).max
    return np.clip(values_K, -most / max(1.0, unit), most / max(1.0, unit)) * unit


def size_of(rewards_N: Floats) -> float:
    """The largest known reward in size; 1 if they are smaller."""
    return max(1.0, float(np.abs(rewards_N[np.isfinite(rewards_N)]).max(initial=0.0)))


def differing(rewards_N: Floats, groups_N: Ints) -> Bools:
    """Whether a completion's group has two known rewards that differ: the others say nothing. (N,)."""
    count = int(groups_N.max()) + 1 if len(groups_N) else 0
    low_P, high_P = np.full(count, np.inf), np.full(count, -np.inf)
    known_N = np.isfinite(rewards_N)
    np.minimum.at(low_P, groups_N[known_N], rewards_N[known_N])
    np.maximum.at(high_P, groups_N[known_N], rewards_N[known_N])
    with np.errstate(over="ignore", invalid="ignore"):
        apart_P: Bools = high_P - low_P > _ROUNDING * size_of(rewards_N)
    return apart_P[groups_N]


def _sums(values_N_K: Floats, places_N: Ints) -> Floats:
    count = int(places_N.max()) + 1 if len(places_N) else 0
    sums = np.zeros((count, values_N_K.shape[1]))
    for k in range(values_N_K.shape[1]):
        sums[:, k] = np.bincount(places_N, weights=values_N_K[:, k], minlength=count)
    return sums


def _interval(s: Floats, q: Floats, squares: Squares, critical: float) -> tuple[Floats, Floats]:
    """The slopes b for which |s − b q| ≤ critical × √(ss − 2 b sq + b² qq): between the roots of a parabola; NaN if it has no bound."""
    ss, sq, qq = (critical**2 * each for each in squares)
    a, b, d = q**2 - qq, s * q - sq, s**2 - ss
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(np.maximum(b**2 - a * d, 0.0))
        low, high = (b - root) / a, (b + root) / a
    bounded = a > 0
    return np.where(bounded, low, np.nan), np.where(bounded, high, np.nan)
