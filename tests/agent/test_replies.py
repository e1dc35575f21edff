"""One fenced Python block is a draft; anything else is a reason the model is told."""

import pytest

from nkismith.agent.replies import BadReply, Draft, extract

CODE = "import nki\n\n\n@nki.jit\ndef op(x):\n    return x\n"


@pytest.mark.parametrize(
    "reply",
    [
        f"```python\n{CODE}```",
        f"Some thoughts.\n\n```py\n{CODE}```\nDone.",
        f"```Python\n{CODE}```",
        f"~~~python\n{CODE}~~~",
        f"````python\n{CODE}````",
        f"```\n{CODE}```",
        f"A shape:\n```text\n[128, 512]\n```\nand\n```python\n{CODE}```",
        f"   ```python\n{CODE}   ```",
        f"```python title=kernel.py\n{CODE}```",
    ],
)
def test_the_one_python_block_is_the_source(reply):
    assert extract(reply, "end_turn") == Draft(CODE, "")


def test_fences_inside_a_longer_fence_belong_to_the_source():
    source = '"""Doc.\n\n```\nnot a block\n```\n"""\n'
    assert extract(f"````python\n{source}````", "end_turn") == Draft(source, "")


@pytest.mark.parametrize(
    ("reply", "stop", "reason"),
    [
        ("", "end_turn", "reply_format"),
        (CODE, "end_turn", "reply_format"),
        (f"```python\n{CODE}```\n```python\n{CODE}```", "end_turn", "reply_format"),
        ("```\na\n```\n```\nb\n```", "end_turn", "reply_format"),
        (f"```python\n{CODE}", "end_turn", "reply_truncated"),
        (f"```python\n{CODE}```", "max_tokens", "reply_truncated"),
        ("I cannot help with that.", "refusal", "reply_refused"),
    ],
)
def test_other_replies_say_why(reply, stop, reason):
    found = extract(reply, stop)
    assert isinstance(found, BadReply) and found.reason == reason and found.message and found.fix


@pytest.mark.parametrize("line", ["Change: tile by 64.", "**Change:** tile by 64.", "- change: tile by 64."])
def test_the_models_own_sentence_is_kept(line):
    assert extract(f"{line}\n\n```python\n{CODE}```", "end_turn").change == "tile by 64."
