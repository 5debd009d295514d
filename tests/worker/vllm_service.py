"""A real HTTP server that speaks the part of vLLM's protocol that we use, and samples with the weights that it was told to load.

It is no vLLM: it stands for one in the fast tests; `make test-vllm` runs a real one. As a real one on a CPU does, it holds the
head of its model apart: tied weights reach it under the head's own name or not at all. Its model begins with random weights,
unless others are given, so that nothing but a sync makes its answers the policy's.
"""

import copy
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedTokenizerBase

HEAD = "lm_head.weight"


def digest(weight: torch.Tensor) -> str:
    """Of a weight's bytes, as vLLM takes it."""
    return hashlib.sha256(weight.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()


class VllmService(ThreadingHTTPServer):
    """Serves one model, as `vllm serve` with --logprobs-mode and, unless `dev` is off, VLLM_SERVER_DEV_MODE=1 would."""

    daemon_threads = True

    def __init__(self, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        torch.manual_seed(12345)
        untied = copy.deepcopy(config)
        untied.tie_word_embeddings = False
        self.model = AutoModelForCausalLM.from_config(untied).eval()
        self.tokenizer = tokenizer
        self.dev, self.processed, self.key = True, True, ""
        self.checker = True  # newer versions of vLLM have /weight_checker
        self.bodies: list[dict[str, Any]] = []
        self.control: list[str] = []  # what was asked of the engine, in order
        self.hold = threading.Event()  # while it is clear, completions wait
        self.hold.set()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    @classmethod
    @contextmanager
    def serving(cls, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> Iterator["VllmService"]:
        """Answers until the end."""
        with cls(config, tokenizer) as one:
            threading.Thread(target=one.serve_forever, args=(0.02,), daemon=True).start()
            yield one
            one.hold.set()
            one.shutdown()

    @torch.no_grad()
    def reload(self, folder: Path) -> None:
        """Take every weight that lies in the folder. Raises where the model has no such weight, or of another shape."""
        own = dict(self.model.named_parameters())
        stored = {name: weight for file in folder.glob("*.safetensors") for name, weight in load_file(file).items()}
        wrong = (stored.keys() ^ own.keys()) - {HEAD}  # a server with tied weights asks for no head, and says nothing
        if wrong:
            raise ValueError(f"{len(wrong)} weights fit no parameter")
        for name, weight in stored.items():
            own[name].copy_(weight.to(self.model.dtype))

    @torch.no_grad()
    def check_weights(self, action: str) -> dict[str, Any]:
        """What /weight_checker does. The head is held where neither action reaches it."""
        shown = {name: weight for name, weight in self.model.named_parameters() if name != HEAD}
        if action == "reset":
            for weight in shown.values():
                weight.zero_()
            return {"status": "reset"}
        joined: dict[str, list[torch.Tensor]] = {HEAD: [torch.empty(0)]}
        for name, weight in shown.items():
            joined.setdefault(re.sub(r"\b[qkv]_proj\b", "qkv_proj", name), []).append(weight.flatten())
        return {"checksums": {f"dp0:pp0:pcp0:tp0:{name}": digest(torch.cat(parts)) for name, parts in joined.items()}}

    @torch.no_grad()
    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        """One token, and the log-probs of the prompt's tokens, which no temperature enters."""
        ids = body["prompt"]
        logprobs = self.model(torch.tensor([ids])).logits[0, :-1].float().log_softmax(-1)
        found = [{str(token): {"logprob": float(row[token])}} for row, token in zip(logprobs, ids[1:], strict=True)]
        return {"index": 0, "text": "", "token_ids": [0], "finish_reason": "length", "prompt_logprobs": [None, *found]}

    @torch.no_grad()
    def complete(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The choices of one prompt: sequence i draws from a generator of its own, seeded with seed + i."""
        assert body["return_token_ids"]
        assert body["logprobs"] == 0
        assert body["temperature"] > 0 or body["n"] == 1, "n must be 1 when using greedy sampling"
        return [self._sequence(body, index) for index in range(body["n"])]

    def _sequence(self, body: dict[str, Any], index: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed((body["seed"] or 0) + index)
        ids: list[int] = []
        logprobs: list[float] = []
        reason = "length"
        while len(ids) < body["max_tokens"] and reason == "length":
            logits = self.model(torch.tensor([body["prompt"] + ids])).logits[0, -1].float()
            scaled = logits / (body["temperature"] or 1)
            drawn = (
                torch.multinomial(scaled.softmax(-1), 1, generator=generator)
                if body["temperature"]
                else logits.argmax()
            )
            ids.append(int(drawn))
            logprobs.append(float((scaled if self.processed else logits).log_softmax(-1)[ids[-1]]))
            text = str(self.tokenizer.decode(ids, skip_special_tokens=True))
            if ids[-1] in body["stop_token_ids"] or any(stop in text for stop in body["stop"]):
                reason = "stop"
        return {
            "index": index,
            "text": text,
            "token_ids": ids,
            "finish_reason": reason,
            "logprobs": {"token_logprobs": logprobs, "tokens": [f"token_id:{token}" for token in ids]},
        }


class Handler(BaseHTTPRequestHandler):
    server: VllmService
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer({"object": "list", "data": [{"id": "served-model", "object": "model"}]})

    def do_POST(self) -> None:
        service = self.server
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"null")
        if service.key and self.path.startswith("/v1/") and self.headers["Authorization"] != f"Bearer {service.key}":
            self._answer({"error": "Unauthorized"}, 401)
        elif self.path == "/v1/completions" and "prompt_logprobs" in body:
            self._answer({"id": "cmpl-0", "object": "text_completion", "choices": [service.read(body)]})
        elif self.path == "/v1/completions":
            service.bodies.append(body)
            service.hold.wait(60)
            choices = service.complete(body)
            self._answer({"id": "cmpl-1", "object": "text_completion", "model": body["model"], "choices": choices})
        elif not service.dev or (self.path == "/weight_checker" and not service.checker):
            self._answer({"detail": "Not Found"}, 404)
        elif self.path == "/weight_checker":
            self._answer(service.check_weights(body["action"]))
        elif self.path == "/collective_rpc":
            assert body["method"] == "reload_weights"
            service.control.append("reload_weights")
            try:
                service.reload(Path(body["kwargs"]["weights_path"]))
            except (ValueError, RuntimeError) as error:
                self._answer({"error": str(error)}, 500)
            else:
                self._answer({"results": [None]})
        else:
            assert self.path == "/reset_prefix_cache"
            service.control.append("reset_prefix_cache")
            self._answer(None)

    def _answer(self, content: object, status: int = 200) -> None:
        data = b"" if content is None else json.dumps(content).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):  # the client gave up
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass
