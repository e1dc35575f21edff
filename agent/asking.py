"""Put the lanes' questions to the model, side by side, and make attempts of the replies.

What the store already holds is not asked again: not the prompt, not the reply. Whatever kept a lane
from its reply is said in the state's `ended`, and is never an attempt.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nkismith.agent.ledger import BudgetSpent
from nkismith.agent.providers import ProviderError, Request, Unavailable, Waiting
from nkismith.agent.replies import BadReply, extract
from nkismith.agent.run import Run
from nkismith.agent.state import Attempt, Ended, Kind, State
from nkismith.prompts.render import Prompt
from nkismith.results.store import Row


@dataclass(frozen=True)
class Ask:
    """One lane's next question. The prompt is only made if the store does not hold it yet."""

    sample: int
    attempt: int
    kind: Kind
    parent: int | None
    round: int
    prompt: Callable[[], Prompt]


def ask_all(run: Run, asks: Sequence[Ask]) -> State:
    """The lanes' replies as attempts, asked side by side. Whatever kept a lane from its reply is in `ended`."""
    results: list[Attempt | BaseException | None] = [None] * len(asks)

    def work(place: int) -> None:
        try:
            results[place] = _ask(run, asks[place])
        except Exception as error:
            results[place] = error

    if len(asks) == 1:
        work(0)
    else:
        # Daemon threads: on Ctrl-C nobody waits minutes for replies that are already charged.
        threads = [threading.Thread(target=work, args=(place,), daemon=True) for place in range(len(asks))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    update: State = {"attempts": {}, "lanes": ()}
    for result in results:
        if isinstance(result, Attempt):
            update["attempts"][result.id] = result
            update["lanes"] = (*update["lanes"], result.id)
        elif result is not None:
            ended = _ended(result)
            if update.get("ended") != "waiting":
                update |= {"ended": ended, "message": str(result)}
    run.watcher.update()
    return update


def _ask(run: Run, ask: Ask) -> Attempt:
    store = run.store
    row = store.attempt(ask.sample, ask.attempt)
    if row is None:
        prompt = ask.prompt()
        row = store.add_attempt(
            sample=ask.sample, attempt=ask.attempt, kind=ask.kind, parent=ask.parent, round=ask.round,
            prompt=store.put(prompt.to_json()), prompt_tokens=prompt.tokens,
        )  # fmt: skip
    if not row.get("reply"):
        prompt = Prompt.from_json(store.text(row["prompt"]))
        request = Request(run.plan.op, ask.sample, ask.attempt, prompt)
        answer = run.ledger.ask(request, lambda text: run.watcher.note(ask.sample, text))
        found = extract(store.text(answer.reply), answer.stop_reason)
        fields: dict[str, Any] = {"call": answer.call, "reply": answer.reply}
        if isinstance(found, BadReply):
            fields |= {
                "stage": "reply", "reason": found.reason, "accepted": 0,
                "verdict": json.dumps({"stage": "reply", **asdict(found)}),
            }  # fmt: skip
        else:
            fields |= {"source": store.put(found.source), "change": found.change}
        store.update_attempt(row["id"], **fields)
    return Attempt.of(row_of(run, ask))


def _ended(error: BaseException) -> Ended:
    match error:
        case BudgetSpent():
            return error.cap  # type: ignore[return-value]
        case Waiting():
            return "waiting"
        case Unavailable():
            return "unavailable"
        case ProviderError():
            return "provider"
    raise error


def row_of(run: Run, of: Attempt | Ask) -> Row:
    """The store's row of an attempt that is known to be there."""
    row = run.store.attempt(of.sample, of.attempt)
    assert row is not None, f"sample {of.sample}, attempt {of.attempt} of run {run.store.id} is not in the store"
    return row
