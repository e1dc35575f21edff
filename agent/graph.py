"""The agent loop on one screen. Nodes are plain functions; what they did is in the store, where they go is here."""

from __future__ import annotations

from typing import Literal

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

from nkismith.agent import nodes
from nkismith.agent.run import Run
from nkismith.agent.state import State


def build() -> StateGraph[State, Run]:
    """draft → check → (revise → check)* → profile → (optimise → check)* → accept, or give_up."""
    graph = StateGraph(State, context_schema=Run)
    for node in (nodes.draft, nodes.check, nodes.revise, nodes.profile, nodes.optimise, nodes.accept, nodes.give_up):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "draft")
    for asks in ("draft", "revise", "optimise"):
        graph.add_conditional_edges(asks, after_reply)
    graph.add_conditional_edges("check", after_check)
    graph.add_conditional_edges("profile", after_profile)
    graph.add_edge("accept", END)
    graph.add_edge("give_up", END)
    return graph


def after_reply(state: State) -> Literal["check", "__end__"]:
    """A hand-off reply that is not there yet ends this call of the run, not the run."""
    return "__end__" if state["ended"] == "waiting" else "check"


def after_check(state: State, runtime: Runtime[Run]) -> Literal["revise", "profile", "give_up"]:
    lanes = [state["attempts"][attempt] for attempt in state["lanes"]]
    if any(attempt.accepted for attempt in lanes):
        return "profile"
    if not state["ended"] and nodes.revisable(lanes, runtime.context):
        return "revise"
    return "profile" if state["best"] is not None else "give_up"


def after_profile(state: State, runtime: Runtime[Run]) -> Literal["optimise", "accept"]:
    return "optimise" if nodes.worth_optimising(state, runtime.context.plan) else "accept"


def invoke(run: Run) -> State:
    """Walk the graph for one run; what the store already holds is not done again."""
    start: State = {"attempts": {}, "lanes": (), "best": None, "round": 0, "stale": 0, "ended": None}
    # LangGraph's own limit is a brake of last resort; the caps and the tries stop a run long before.
    steps = 20 + 4 * run.plan.tries * (run.plan.rounds + 1)
    return build().compile().invoke(start, context=run, config={"recursion_limit": steps})  # type: ignore[return-value]
