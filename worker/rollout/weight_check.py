"""Whether a vLLM server has the weights that it was sent: looked at after each change, before anything is sampled with them."""

import hashlib
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from worker.errors import RunFailure
from worker.policy.logprobs import TokenBatch
from worker.policy.policy import Policy
from worker.rollout.vllm_server import VllmServer

_GONE = 1.0
"""Nats a token, in the mean: a server with other weights is several away. On SmolLM2 bfloat16 is 0.06, and more where the
prompt's tokens are unlikely, which is why this is wider than the bound on what was sampled."""
# The same tokens every time: the ends of the first prompts. Few, since a server holds whole logits for them.
_ROWS, _ROW_TOKENS = 4, 64
# An update is visible if it moves their log-probs by this many times the rounding between worker and server. It was taken
# if the server then is not further away than `_STEADY` times that rounding, or this share of the way. (Where the head alone
# stays behind, as tied weights can, that is a tenth of the way and more.)
_VISIBLE, _STEADY, _SHARE = 16, 4, 1 / 16
# Rounding is taken for at least this; a server as close as `_CLOSE` has the weights, also if none were there before.
_LEAST_ROUNDING, _CLOSE = 1e-6, 1e-4
_NOTHING = hashlib.sha256().hexdigest()
"""The checksum of a weight that the server shows without contents, as a CPU's are that were laid out anew."""


class WeightCheck:
    """Compares log-probs of fixed tokens with the policy's, after each change of weights; raises RunFailure `vllm_mismatch`.

    A server that missed an update is as far away as the update moved the policy. Where rounding is larger than that, as in
    bfloat16, this shows only if the server was emptied before: then what it did not take is zero.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._rows: list[list[int]] = []
        # Of the weights that the server was last seen to have: updates too small to be seen add up until they are.
        self._own_M: Tensor | None = None
        self._rounding = math.inf  # how far apart they were then
        self._remarked = False

    async def compare_names(
        self, server: VllmServer, emptied: Mapping[str, str], weights: Mapping[str, Tensor]
    ) -> None:
        """See that no weight is still what it was in the emptied server."""
        loaded = await server.checksums()
        same = {name.rpartition(":")[2] for name in loaded if loaded[name] == emptied.get(name) != _NOTHING}
        missing = sorted(name for name in same if _belongs_to_weights_of_which_none_is_zero(name, weights))
        if missing:
            raise _mismatch(f"did not take {len(missing)} of the policy's weights, among them {missing[0]}")

    async def compare_logprobs(
        self, server: VllmServer, model: str, prompts_P: Sequence[Sequence[int]], *, emptied: bool
    ) -> None:
        """See that the server is where the policy is now, and not where it was before the last change."""
        if not self._rows:
            self._rows = [list(prompt[-_ROW_TOKENS:]) for prompt in prompts_P if len(prompt) > 1][:_ROWS]
        if not self._rows:
            return  # a prompt's first token has no log-prob
        theirs_M = torch.tensor([value for row in self._rows for value in await server.logprobs(model, row)])
        own_M, before_M = self._own_logprobs(), self._own_M
        apart = float((theirs_M - own_M).abs().mean())
        moved = None if before_M is None else float((own_M - before_M).abs().mean())
        if not apart <= _GONE:
            raise _mismatch(
                f"is {apart:.2f} nats a token away from the policy after it was sent its weights: they did not arrive, or it "
                "serves another model, or a quantized one"
            )
        visible = apart <= _CLOSE if moved is None else moved >= _VISIBLE * self._rounding
        if visible and moved is not None and apart > max(_STEADY * self._rounding, _SHARE * moved):
            raise _mismatch(
                f"missed an update, or took a part of it: the log-probs of {len(own_M)} tokens have moved by "
                f"{moved:.2g} nats, and the server's are {apart:.2g} away from where they should be"
            )
        if not visible and not emptied:
            self._remark(apart, moved)
        if visible or before_M is None:
            self._own_M, self._rounding = own_M, max(_LEAST_ROUNDING, apart)

    @torch.no_grad()
    def _own_logprobs(self) -> Tensor:
        batch = TokenBatch.of([row[:1] for row in self._rows], [row[1:] for row in self._rows], self._policy.device)
        return self._policy.logprobs(batch, temperature=1.0).logprob_R_T[batch.mask_R_T].cpu()

    def _remark(self, apart: float, moved: float | None) -> None:
        """Once: it is the same after most updates."""
        if not self._remarked:
            self._remarked = True
            update = "" if moved is None else f", the last update moved them by {moved:.2g}"
            self._policy.remarks.append(
                f"it cannot be seen whether the vLLM server takes each update: its log-probs are {apart:.2g} nats a token "
                f"away from the policy's{update}, and it has no /weight_checker (docs/engines.md)"
            )


def _belongs_to_weights_of_which_none_is_zero(name: str, weights: Mapping[str, Tensor]) -> bool:
    """Of the same name, or for what the server joined (`qkv_proj.weight`), of the layer's part that it stands in."""
    own = [weights[name]] if name in weights else []
    if not own and name.endswith(".weight"):
        part = name.rsplit(".", 2)[0]
        own = [weight for known, weight in weights.items() if known.startswith(f"{part}.")]
    return bool(own) and all(bool(weight.any()) for weight in own)


def _mismatch(what: str) -> RunFailure:
    return RunFailure(
        "vllm_mismatch",
        f"The worker's vLLM server {what}. Its log may say why; no other worker may use it (docs/engines.md). Then retry: the "
        "run goes on from its last checkpoint. Or set sampling.engine to native.",
    )
