"""Which column is what, in layouts that are easily taken for others: what is asked, compared or preferred, or the question to a person."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from backend.contract.cells import Cells
from backend.uploads.roles import of_pairs, of_task

Layout = Callable[[int], dict[str, Any]]

TASKS: list[tuple[Layout, str]] = [
    (lambda n: {"Question":f"What is {n}?","Option A":"x","Option B":"y","Option C":"z","Correct Answer":"AB"[n%2]}, 'Question | Correct Answer'),
    (lambda n: {"Frage":f"Was ist {n}?","Antwort A":"x","Antwort B":"y","Richtige Antwort":"AB"[n%2]}, 'Frage | Richtige Antwort'),
    (lambda n: {"question":f"What is {n}?","option1":"x","option2":"y","answer":str(1+n%2)}, 'question | answer'),
    (lambda n: {"question":f"What is {n}?","options":{"1":"x","2":"y","3":"z"},"answer":1+n%3}, 'question + options.lettered | answer'),
    (lambda n: {"question":f"What is {n}?","options":{"A":"Nitro","B":"Asa"},"answer":"Nitro","answer_idx":"A"}, 'question + options.lettered | answer in options'),
    (lambda n: {"question":f"What is {n}?","choices":"['3' '4' '5']","answer":"ABC"[n%3]}, 'question + choices.lettered | answer'),
    (lambda n: {"question":f"What is {n}?","choices":["Paris","Rome"],"answer":"Rome"}, 'question + choices.lettered | answer in choices'),
    (lambda n: {"question":f"What is {n}?","choices":["3","4"],"answer":["A","C"]}, 'Is answer the choice itself or its place'),
    (lambda n: {"question":f"What is {n}?","answer":"ABC"[n%3]}, 'The answers are letters, and no choices '),
    (lambda n: {"question":f"What is {n}? A) x B) y","answer":"AB"[n%2]}, 'question | answer'),
    (lambda n: {"question":f"What is {n}?","mc1_targets":{"choices":["a","b"],"labels":[1,0]}}, 'question | None'),
    (lambda n: {"prompt":f"What is {n}?","completion":f"it is {n}","label":bool(n%2)}, 'label says which completions are good: k'),
    (lambda n: {"question":f"What is {n}?","answer_type":"int","final_result":n}, 'question | final_result'),
    (lambda n: {"question":f"What is {n}?","answer":'["delta", "epsilon"]'}, 'question | answer'),
    (lambda n: {"prompt":f"Do {n} things","ground_truth":json.dumps({"func_name": "x", "n": n})}, 'prompt | ground_truth'),
    (lambda n: {"target":str(n),"nums":f"[{n}, 5, 10]"}, 'nums + target | target | nums'),
    (lambda n: {"question":f"What is the mean of {n}, 5?","numbers":[n,5],"answer":n}, 'question | answer'),
    (lambda n: {"Zahlen":f"{n} 5 10","Ziel":n+5}, 'Zahlen + Ziel | Ziel | Zahlen'),
    (lambda n: {"Body":f"There are {n} apples on it.","Question":f"How many are {n}?","Answer":n}, 'Body + Question | Answer'),
    (lambda n: {"question":"What is the capital?","context":f"Land {n} has a capital {n}.","answer":str(n)}, 'question + context | answer'),
    (lambda n: {"text":f"message number {n} of all","role":["prompter","assistant"][n%2]}, 'Each row is one message of a conversatio'),
    (lambda n: {"question_type":"abc"[n%3],"item":f"What is {n} and {n}?","answer":n}, 'Which column holds the prompts? It may b'),
    (lambda n: {"番号":n,"問題文":f"{n}たす{n}は?","正解":2*n}, '問題文 | 正解'),
    (lambda n: {"Question posée":f"Combien {n}?","Corrigé":n}, 'Question posée | Corrigé'),
    (lambda n: {"text":f"<|im_start|>user\nWhat is {n}?<|im_end|>\n<|im_start|>assistant\n{n}<|im_end|>"}, 'text.chat | text.answer'),
    (lambda n: {"text":f"[INST] What is {n}? [/INST] It is {n} </s>"}, 'text.chat | text.answer'),
    (lambda n: {"text":f"### Instruction:\nWhat is {n}?\n\n### Response:\n{n}"}, 'text.chat | text.answer'),
    (lambda n: {"prompt":f"{n}x{n}","answer":n*n}, 'prompt | answer'),
    (lambda n: {"contents":[{"role":"user","parts":[{"text":f"What {n}?"}]},{"role":"model","parts":[{"text":str(n)}]}]}, 'contents.chat | contents.answer'),
    (lambda n: {"prompt":f"What is {n}?","system":f"Be {n}","answer":n}, 'prompt | answer'),
    (lambda n: {"question":f"Is {n} here?","A":f"x{n}","B":f"y{n}","C":f"w{n}","answer":f"x{n}"}, 'Is answer the choice itself or its place'),
    (lambda n: {"a":n,"b":1,"question":f"Solve {n}x + 1 = {n * n + 1}","answer":7 * n}, 'question | answer'),
    (lambda n: {"id":f"r{n}","quiz":f"What is {n} and more?","solution_text":f"it is {n}"}, 'quiz | solution_text'),
    (lambda n: {"Question":f"What is {n} and more?","A":f"it {n}"}, 'Question | A'),
    (lambda n: {"question":f"What is {n}?","model_response":f"it is {n}","correct":n%2}, 'correct says which completions are good'),
    (lambda n: {"system_prompt":"Be brief now.","question":f"What is {n}?","answer":n}, 'question | answer'),
]  # fmt: skip
PAIRS: list[tuple[Layout, str]] = [
    (lambda n: {"prompt":f"What {n}?","chosen_rating":3,"rejected_rating":2,"chosen_response":f"good {n}","rejected_response":f"bad {n}"}, 'prompt | chosen_response | rejected_response'),
    (lambda n: {"prompt":f"What {n}?","chosen_model":"gpt","rejected_model":"l3","chosen_response":f"good {n}","rejected_response":f"bad {n}"}, 'prompt | chosen_response | rejected_response'),
    (lambda n: {"prompt":f"What {n}?","response_a":f"good {n}","response_b":f"bad {n}","winner":"a","loser":"b"}, 'Which column holds the preferred answer,'),
    (lambda n: {"prompt":f"What {n}?","response_a":f"good {n}","response_b":f"bad {n}","chosen":1,"rejected":0}, 'Which column holds the preferred answer,'),
    (lambda n: {"prompt":f"What {n}?","chosen":{"text":f"good {n}","score":3},"rejected":{"text":f"bad {n}","score":3}}, 'prompt | chosen.text | rejected.text'),
    (lambda n: {"prompt":f"What {n}?","chosen":{"response":f"good {n}"},"rejected":{"response":f"bad {n}"}}, 'prompt | chosen.response | rejected.response'),
    (lambda n: {"prompt":f"q{n}?","chosen":[{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"user","content":"m"},{"role":"assistant","content":"c"}],"rejected":[{"role":"user","content":"q"},{"role":"assistant","content":"b"},{"role":"user","content":"o"},{"role":"assistant","content":"d"}]}, 'chosen and rejected differ before their '),
    (lambda n: {"ask":f"What is it with {n}?","chosen":f"The answer is {n}","rejected":"The answer is not"}, 'ask | chosen | rejected'),
    (lambda n: {"Frage":f"Was ist {n}?","Bessere Antwort":f"gut {n}","Schlechtere Antwort":f"nicht {n}"}, 'Frage | Bessere Antwort | Schlechtere Antwort'),
    (lambda n: {"input":f"What is {n}?","preferred_output":f"gut {n}","non_preferred_output":f"nicht {n}"}, 'input | preferred_output | non_preferred_output'),
    (lambda n: {"chosen":f"<|im_start|>user\nq{n}<|im_end|>\n<|im_start|>assistant\nYes {n}<|im_end|>","rejected":f"<|im_start|>user\nq{n}<|im_end|>\n<|im_start|>assistant\nNo<|im_end|>"}, 'chosen & rejected | chosen - rejected | rejected - chosen'),
    (lambda n: {"chosen":f"Human: q {n} Assistant: yes {n}","rejected":f"Human: q {n} Assistant: no"}, 'chosen & rejected | chosen - rejected | rejected - chosen'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("guess", "layout", "expected"), [(of_task, *one) for one in TASKS] + [(of_pairs, *one) for one in PAIRS]
)
def test_what_each_column_is(guess: Callable[[Any], Any], layout: Layout, expected: str) -> None:
    roles = guess([Cells(layout(n)) for n in range(3, 9)])
    names = ("prompt_column", "answer_column", "numbers_column", "chosen_column", "rejected_column")
    found = roles.question or " | ".join(str(roles.fields[name]) for name in names if name in roles.fields)
    assert found.startswith(expected)
