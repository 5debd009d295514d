"""Log-probabilities of sampled tokens, with and without gradient: what every ratio and every KL rests on."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, cast

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import PreTrainedModel

from worker.errors import RunFailure
from worker.failure import of_device
from worker.policy.attention import attend
from worker.policy.decoder import Decoder, run_layers
from worker.policy.device import send
from worker.policy.packing import Packing
from worker.policy.recomputing import recomputing
from worker.policy.vocabulary import Output, TokenStatistics, among_support, at_least_float32, token_statistics
from worker.ranks.ranks import ALONE, Ranks
from worker.ranks.sharding import gathered


class ValueHead(torch.nn.Module):
    """V(s) = w · h(s) + b, h the last hidden state; it begins at 0 and expects nothing."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(hidden_size))
        self.bias = torch.nn.Parameter(torch.zeros(()))

    def forward(self, hidden_R_T_H: Tensor) -> Tensor:
        """Values (R, T). In float32 also under autocast, which would round a matrix product to bfloat16."""
        return (hidden_R_T_H.to(self.weight.dtype) * self.weight).sum(-1) + self.bias


Path = Literal["packed", "rows", "plain"]
# Apart from a plain forward by more than this, a path computes something else; rounding stays far below. At most, in
# float32; in the mean, below it: there a single one may be off by a quarter where logits are large.
_ROUNDING, _ROUNDING_BELOW_FLOAT32 = 1e-3, 0.15
_DIFFERS = (
    "The log-probs of this model in training are {} apart from those of a plain forward of one completion alone. Its weights are "
    "not finite, it works otherwise while it trains, or it reads ahead or counts positions in its own way. Choose another model."
)
_CHECKED_ROWS, _CHECKED_ROWS_BELOW_FLOAT32 = 2, 8
_CHECKED_TOKENS, _CHECKED_TOKENS_BELOW_FLOAT32 = 2048, 512  # of each; plain logits and attention are large arrays


@dataclass(frozen=True)
class TokenBatch:
    """R completions and the prompt of each: M completion tokens in all, completion by completion."""

    prompts_R: Sequence[Sequence[int]]
    completions_R: Sequence[Sequence[int]]
    ids_M: Tensor
    mask_R_T: Tensor  # True where a completion token stands
    places_M: Tensor  # where, in the mask laid out flat
    support_M_K: Tensor | None = None  # the tokens that could be drawn, padded with -1; None: all of them

    @staticmethod
    def of(
        prompts: Sequence[Sequence[int]],
        completions: Sequence[Sequence[int]],
        device: torch.device,
        supports: Sequence[Sequence[Sequence[int]]] | None = None,
    ) -> "TokenBatch":
        """The batch of R completions and the prompt of each.

        `supports` names, for each token of each completion, the tokens that the sampler could draw.
        """
        lengths = torch.tensor([len(completion) for completion in completions])
        mask = torch.arange(max(1, int(lengths.max())))[None, :] < lengths[:, None]
        ids = torch.tensor([token for completion in completions for token in completion], dtype=torch.long)
        support = None if supports is None else _padded([ids for completion in supports for ids in completion], -1)
        sent = None if support is None else send(support, device)
        places = mask.flatten().nonzero()[:, 0]
        return TokenBatch(prompts, completions, send(ids, device), send(mask, device), send(places, device), sent)

    @cached_property
    def packing(self) -> Packing:
        """The tokens in one row, each prompt there once."""
        different = {tuple(prompt): place for place, prompt in enumerate(dict.fromkeys(map(tuple, self.prompts_R)))}
        of_R = [different[tuple(prompt)] for prompt in self.prompts_R]
        return Packing.of(list(different), self.completions_R, of_R, self.ids_M.device)

    def largest_among(self, ranks: Ranks) -> "TokenBatch":
        """The largest one that a process has in the place of this one, without support: all of them get the same."""
        if ranks.alone:
            return self
        every = ranks.gather((self.prompts_R, self.completions_R))
        return TokenBatch.of(*max(every, key=lambda one: sum(map(len, one[1]))), self.ids_M.device)

    def longest(self, count: int, tokens: int, prompt_tokens: int = 0) -> "TokenBatch":
        """The batch of the `count` longest completions: of each at most `tokens`, and the last `prompt_tokens` of its prompt (0: all).

        Without support.
        """
        rows = sorted(range(len(self.completions_R)), key=lambda row: -len(self.completions_R[row]))[:count]
        prompts = [self.prompts_R[row][-prompt_tokens:] for row in rows]
        return TokenBatch.of(prompts, [self.completions_R[row][:tokens] for row in rows], self.ids_M.device)


@dataclass(frozen=True)
class TokenValues:
    """Per completion token, (R, T), float32: 0 where the mask is False."""

    logprob_R_T: Tensor
    entropy_R_T: Tensor  # of the distribution over all tokens
    full_logprob_R_T: Tensor  # over all tokens if logprob is over the sampler's support, otherwise the same
    value_R_T: Tensor | None = None  # of the state before the token, where there is a value head


class TrainingPass:
    """A model's forward pass over completions, by the fastest path that gives what a plain forward gives.

    packed: our own loop over the layers, every token once. rows: transformers' loop, each completion behind a prompt of its own.
    Both project onto the vocabulary chunk by chunk. plain: transformers alone, whole logits, for those that are more than a
    product. The first pass of each model is held against a plain forward, and what differs is not used.
    """

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        *,
        recompute: bool,
        remark: Callable[[str], None],
        fast: bool = True,
        ranks: Ranks = ALONE,
    ) -> None:
        self._model, self._ranks, self._recompute, self._remark = model, ranks, recompute, remark
        self.decoder = Decoder.of(model) if fast else None
        self._paths: list[Path] = ["packed", "rows"] if self.decoder is not None else ["rows"]
        config = vars(
            model.config.get_text_config()
        )  # a cap on logits shows only once they are large, which may be later
        capped = any(config[name] for name in config if "softcap" in name)
        if not fast or capped or type(model.get_output_embeddings()) is not nn.Linear:
            self._paths = []
        self._checked = False

    @property
    def path(self) -> Path:
        """The path that is taken."""
        return self._paths[0] if self._paths else "plain"

    def __call__(self, batch: TokenBatch, *, temperature: float, value_head: ValueHead | None = None) -> TokenValues:
        """Log-probability of each completion token, and the entropy of the distribution it was drawn from, in nats.

        Of the temperature-scaled logits, in float32 at least. Gradients flow where they are enabled. Where the batch has a support,
        log-probs are renormalised over it, whatever the weights are now: truncating again would drop tokens that were drawn.
        """
        self.check(batch)
        hidden_M_H, statistics = self._by(self.path, batch, temperature, with_hidden=value_head is not None)
        full_R_T = logprob_R_T = _scatter(statistics.logprob_M, batch)
        if batch.support_M_K is not None:
            logprob_R_T = _scatter(statistics.support_logprob_M, batch)
        values = None
        if value_head is not None and hidden_M_H is not None:
            values = _scatter(value_head(hidden_M_H), batch)
        return TokenValues(logprob_R_T, _scatter(statistics.entropy_M, batch), full_R_T, values)

    @torch.no_grad()
    def apart_from_plain(self, batch: TokenBatch, logprob_M: Tensor) -> tuple[float, float]:
        """How far these log-probs are from a plain forward's, at temperature 1, and what is still rounding."""
        logprobs = []  # row by row, since whole logits are the largest array there is
        for prompt, completion in zip(batch.prompts_R, batch.completions_R, strict=True):
            ids, asked = torch.tensor([[*prompt, *completion]], device=batch.ids_M.device), len(completion)
            # without the last token: what else a model reads ahead, it would read here, too
            logits = self._model(input_ids=ids[:, :-1], use_cache=False, logits_to_keep=asked).logits
            logits = logits[0, -asked:].to(at_least_float32(logits.dtype))  # some models give more
            chosen = logits.gather(-1, ids[0, len(prompt) :, None])[:, 0]
            logprobs.append(chosen - logits.logsumexp(-1))
        apart_M = (logprob_M - torch.cat(logprobs)).abs()
        if torch.is_autocast_enabled(batch.ids_M.device.type):
            return float(apart_M.mean()), _ROUNDING_BELOW_FLOAT32
        return float(apart_M.max()), _ROUNDING

    def check(self, batch: TokenBatch) -> None:
        """The first time: hold each path, as it trains, against a plain forward on the longest completions.

        Those that differ are dropped. Raises RunFailure `training_pass_differs` if transformers' own training pass differs, too.
        """
        if self._checked:
            return
        batch = batch.largest_among(self._ranks)
        while difference := self._difference(batch):
            if not self._paths:
                raise RunFailure("training_pass_differs", _DIFFERS.format(difference))
            self._remark(
                f"the log-probs of the fast training pass ({self._paths.pop(0)}) are {difference} apart from a plain forward's: "
                "it is not used, which is slower"
            )
        self._checked = True

    def _difference(self, batch: TokenBatch) -> str:
        """How far the path is from the plain one, by the process that finds it farthest; "" if all find no more than rounding.

        In float32 first, where rounding hides no error and looks like none; then in the precision of training, whose kernels are
        others. All processes go on or none: they gather weights together.
        """
        kind, tried = batch.ids_M.device.type, [(batch.longest(_CHECKED_ROWS, _CHECKED_TOKENS), False)]
        if torch.is_autocast_enabled(kind):
            most = _CHECKED_TOKENS_BELOW_FLOAT32
            tried.append((batch.longest(_CHECKED_ROWS_BELOW_FLOAT32, most, prompt_tokens=most), True))
        for few, below in tried:
            with torch.autocast(kind, dtype=torch.get_autocast_dtype(kind), enabled=below):
                own = _apart(self, few, below=below)
            if difference := max(self._ranks.gather(own)):
                return difference
        return ""

    def _by(
        self, path: Path, batch: TokenBatch, temperature: float, *, with_hidden: bool = False
    ) -> tuple[Tensor | None, TokenStatistics]:
        if path == "plain":
            return self._plain(batch, temperature, with_hidden)
        return gathered(self._model, self._by_own_projection, path, batch, temperature)

    def _by_own_projection(self, path: Path, batch: TokenBatch, temperature: float) -> tuple[Tensor, TokenStatistics]:
        hidden_M_H = self._packed(batch.packing) if path == "packed" else _row_by_row(self._model, batch)
        head = cast(nn.Linear, self._model.get_output_embeddings())
        output = Output(head.weight, head.bias)
        return hidden_M_H, token_statistics(
            hidden_M_H, output, batch.ids_M, temperature=temperature, support_M_K=batch.support_M_K
        )

    def _packed(self, packing: Packing) -> Tensor:
        decoder = cast(Decoder, self.decoder)
        x_N_H = decoder.embed(packing.ids_N)
        rotate = decoder.rotation(packing.positions_N, x_N_H)
        recompute = self._recompute and torch.is_grad_enabled()
        x_N_H = run_layers(
            decoder.layers, x_N_H, rotate, lambda _, q_N, k_N, v_N: attend(q_N, k_N, v_N, packing), recompute=recompute
        )
        return decoder.normalise(x_N_H.index_select(0, packing.predicting_M))

    def _plain(self, batch: TokenBatch, temperature: float, with_hidden: bool) -> tuple[Tensor | None, TokenStatistics]:
        ids, mask, predicting = _side_by_side(batch)
        output = self._model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=_positions(mask),
            use_cache=False,
            output_hidden_states=with_hidden,
        )
        logits_M_V = output.logits[predicting].to(at_least_float32(output.logits.dtype)) / temperature
        logprobs_M_V = logits_M_V.log_softmax(-1)
        logprob_M = logprobs_M_V.gather(-1, batch.ids_M[:, None])[:, 0]
        entropy_M = -(logprobs_M_V.exp() * logprobs_M_V).sum(-1)
        support_logprob_M = logprob_M
        if batch.support_M_K is not None:
            support_logprob_M = logprob_M - among_support(logprobs_M_V, batch.support_M_K).logsumexp(-1)
        hidden_M_H = output.hidden_states[-1][predicting] if with_hidden else None
        return hidden_M_H, TokenStatistics(logprob_M, entropy_M, support_logprob_M)


def _apart(passing: TrainingPass, few: TokenBatch, *, below: bool) -> str:
    """How far the path is from the plain one, in words; "" for no more than rounding. A path that raises is as far as can be.

    Raises what the plain one raises, and an error of the device.
    """
    try:
        with torch.enable_grad(), recomputing(passing._model):  # the way that trains
            logprob_M = passing._by(passing.path, few, 1.0)[1].logprob_M.detach()
    except (AttributeError, TypeError, RuntimeError) as error:
        if passing.path == "plain" or of_device(error):
            raise
        return f"missing ({type(error).__name__}: {str(error).partition(chr(10))[0]:.200}) and so"
    with sdpa_kernel(SDPBackend.MATH) if below else nullcontext():
        apart, allowed = passing.apart_from_plain(few, logprob_M)
    return "" if apart <= allowed else f"{apart:.2g} (at most {allowed:g} is rounding)"


def _row_by_row(model: PreTrainedModel | PeftModel, batch: TokenBatch) -> Tensor:
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    ids, mask, predicting = _side_by_side(batch)
    decoder = cast(PreTrainedModel, base).get_decoder()  # type: ignore[no-untyped-call]
    hidden: Tensor = decoder(
        input_ids=ids, attention_mask=mask, position_ids=_positions(mask), use_cache=False
    ).last_hidden_state
    return hidden[predicting]


def _side_by_side(batch: TokenBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of prompt and completion, padded on the right: token ids, their mask, and True where the next is a completion's."""
    rows = [[*prompt, *ids] for prompt, ids in zip(batch.prompts_R, batch.completions_R, strict=True)]
    lengths = torch.tensor([len(row) for row in rows])[:, None]
    begins = torch.tensor([len(prompt) for prompt in batch.prompts_R])[:, None]
    columns = torch.arange(int(lengths.max()))[None, :]
    predicting = (columns >= begins - 1) & (columns < lengths - 1)
    device = batch.ids_M.device
    return _padded(rows, 0).to(device), (columns < lengths).long().to(device), predicting.to(device)


def _padded(rows: Sequence[Sequence[int]], filler: int) -> Tensor:
    """Token ids, (rows, longest)."""
    ids = torch.full((len(rows), max(map(len, rows), default=1)), filler, dtype=torch.long)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = torch.tensor(list(row))
    return ids


def _positions(mask_R_L: Tensor) -> Tensor:
    return (mask_R_L.cumsum(-1) - 1).clamp(min=0)


def _scatter(values_M: Tensor, batch: TokenBatch) -> Tensor:
    """To (R, T), with 0 where the mask is False. By places, since the gradient of a mask asks the device how many there are."""
    flat = torch.zeros(batch.mask_R_T.numel(), dtype=values_M.dtype, device=values_M.device)
    return flat.index_copy(0, batch.places_M, values_M).view(batch.mask_R_T.shape)
