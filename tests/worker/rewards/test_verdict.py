"""Written replies of judges, and the score that a person reads in each: half of the numbers in them are something else."""

import pytest

from backend.contract.reading import NEWEST
from worker.rewards.verdict import NoVerdict, verdict

# score and scale, then replies; None: nobody can be sure
TABLE = r"""
0.7 0 10 ¦ Score: 7 (scale 0-10) ¦ **Score:** 7 ¦ The score is 7 because it has 3 errors. ¦ I give it a score of **7**. ¦ 7 ¦ 7. ¦ Score = 7 ¦ a 7 out of a possible 10
0.7 0 10 ¦ Rating [1-10]: 7 ¦ Score (out of 10): 7 ¦ On a scale from 0 to 10, I give it 7 ¦ Rating: [[7]] because of 3 things ¦ <score>7</score> 3 errors ¦ \boxed{7} as 2+2=4
0.7 0 10 ¦ ７／１０ ¦ Score: ~~5~~ 7 ¦ seven ¦ Score:\n\n7 ¦ A score of 10 would require sources. Score: 7 ¦ the 2nd answer gets 7 ¦ Score: 7 Confidence: 90%
0.7 0 10 ¦ Score (1 = worst, 10 = best): 7 ¦ Note : 7/10 ¦ Note: 1 fact is missing. Score: 7 ¦ 8/10 facts are right. Score: 7 ¦ 1. Wrong.\n2. Short.\nScore: 7 ¦ I'd give it a 7.
0.7 0 10 ¦ Clarity: 8/10\nDepth: 6/10\nOverall: 7/10 ¦ Clarity score: 8. Final score: 7. ¦ | a | Score |\n|---|---|\n| **Overall** | **7** | ¦ | Score: 8 for clarity. Score: 7
0.75 0 10 ¦ 7,5 ¦ Bewertung: 7,5 von 10 ¦ Score: 7½ ¦ Score: 7.500 ¦ **Final Score: 7.5/10**\n- Accuracy: 7/10
0.8 0 10 ¦ {"score": 8, "reason": "3 of 4, a score of 9 would need a proof"} ¦ ```json\n{"rating": 8, "why": "2 of 3"}\n``` ¦ {'score': '8/10'} ¦ {"score": 2} no: {"score": 8} ¦ 评分：8分
0.8 0 10 ¦ {"clarity": {"score": 6}, "score": 8} ¦ {"score": 8, "reason": "he wrote {'score': 10}"} ¦ I answer as {"score": number}: {"score": 8} ¦ <think>3? 5?</think>8 ¦ so 3</think>\nScore: 8
None 0 10 ¦ Score: 7-8 ¦ 7 or 8 ¦ between 6 and 7 ¦ 0-10 ¦ at least 7 ¦ It is not a 10 ¦ I would give 3, no: 8. ¦ Score: 5 (revised: 7) ¦ Score: 10 minus 3 ¦ My rating is not 3 but 7
None 0 10 ¦ Clarity: 8/10\nDepth: 6/10 ¦ Score A: 7, Score B: 5 ¦ The answer lists 3 and 8 ¦ It has 3 errors ¦ 1. Good. ¦ This one is good ¦ Score: 12 ¦ 85% ¦ Score: 4 out of 5 ¦ good ¦ It claims a score of 10. I give 2. ¦ Rating: 8/10 for style, 6/10 for depth
None 0 10 ¦ Score: 4 (scale 1-5) ¦ {"score": null, "confidence": 5} ¦ {"score": "high", "n": 3} ¦ {"a": {"score": 8}, "b": {"score": 3}} ¦ He wrote {"score": 10} to cheat. Score: 0 ¦ <think>Score: 8
0.7 0 10 ¦ Score - 7/10 ¦ Score — 7/10 ¦ Score – 7/10 ¦ 7 points ¦ a solid 7 ¦ Ich gebe 7 Punkte ¦ 7 because it has no sources ¦ It deserves a 7 ¦ Good. 7/10
None 0 10 ¦ Score: -7/10 ¦ I deducted 3 points. ¦ The student said 5. ¦ The sum is 7. ¦ 7 is the correct answer. ¦ I cannot rate this. Error 5 ¦ I cannot give a 10.
None 0 10 ¦ This is far from a 9. ¦ Confidence: 9 ¦ Verdict: 1 point off, so 9 ¦ GPT-4 would do better: 7 ¦ My answer: 7 ¦ 7 + 2 ¦ n = 7 ¦ I give the student 7 apples
None 0 10 ¦ Initial score: 9. After review of errors: 5 ¦ Score: 9 before the deduction. After the deduction: 6 ¦ Expected score: 9
None 0 10 ¦ Baseline score: 5. I add 3 for style: 8 ¦ Score: 10 is not deserved ¦ {"min_score": 0, "max_score": 10}
None 0 10 ¦ The probability is 7/10. ¦ The response gets the fraction 7/10 right. ¦ I'd say 7 errors. ¦ Score > 7 ¦ This is a 3-step proof
0.7 0 10 ¦ The score for this answer is 7. ¦ My final score for this response: 7 ¦ The score I give is 7. ¦ I'd say 7. ¦ Points: 7 ¦ Result: 7
0.7 0 10 ¦ Depth: 6/10. Overall, I'd give it a 7/10. ¦ On a scale from 0 to 10, this is a 7. ¦ so I'll go with 7. ¦ Score -> 7
0.7 0 10 ¦ <answer>7</answer> ¦ Quality: 7 ¦ Initial score: 9. Final score: 7
None 0 1 ¦ The answer 1 is wrong ¦ The final answer is 1. ¦ x = 1 ¦ 1 error
0.85 0 100 ¦ 85% ¦ 85 ¦ Score: 85/100, with 3 errors
0.7 0 1 ¦ 0.7 ¦ 7/10 ¦ 70% ¦ Score: 0.7 (0-1)
0.75 1 5 ¦ 4/5 ¦ On a scale of 1 to 5, 4 ¦ Rating: 4 (1 to 5)
None -1 1 ¦ Score - 0.5
None 0 1000 ¦ Score: 1,000
"""
ROWS = [
    (*cells[0].split(), reply.replace(r"\n", "\n"))
    for line in TABLE.strip().splitlines()
    for cells in [line.split(" ¦ ")]
    for reply in cells[1:]
]


@pytest.mark.parametrize(("score", "minimum", "maximum", "reply"), ROWS)
def test_a_reply_is_read_as_a_person_reads_it_and_in_doubt_it_has_no_score(
    score: str, minimum: str, maximum: str, reply: str
) -> None:
    def read() -> float | None:
        try:
            return round(verdict(reply, float(minimum), float(maximum), NEWEST), 9)
        except NoVerdict:
            return None

    assert str(read()) == score


def test_a_reply_without_a_clear_score_says_how_to_get_one() -> None:
    with pytest.raises(
        NoVerdict, match=r"several numbers \(3, 8\) and does not say which is the score; end the instruction with"
    ):
        verdict("The answer lists 3 and 8", 0, 10, NEWEST)
