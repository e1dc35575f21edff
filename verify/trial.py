"""One trace against its spec: is it legal, does it do only what the spec declares, and is it right on one trial?

What the verdict asks of a draft and what the mutation engine asks of a mutant are the same questions, asked here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nkismith.kernels.spec import OpSpec
from nkismith.verify.blame import Blame, blame
from nkismith.verify.cases import Trial, draw
from nkismith.verify.compare import Comparison, compare
from nkismith.verify.failure import Failure
from nkismith.verify.precision import check_precision
from nkismith.verify.reasons import Reason, of_rule
from nkismith.verify.reference import Expected, expected
from nkismith.verify.simulator import legality
from nkismith.verify.simulator.dtypes import ITEMSIZE
from nkismith.verify.simulator.errors import LegalityError, UnsupportedInstruction
from nkismith.verify.simulator.execute import Execution, execute, held_bytes
from nkismith.verify.simulator.instruction import define
from nkismith.verify.simulator.machine import STEP_BUDGET
from nkismith.verify.simulator.rearrange import dense_strides
from nkismith.verify.simulator.trace import Buffer, Operand, Trace, walk

CLOSE_CALL = 16.0  # error over what is allowed, below which a better estimate of the spread may still decide
ROOM = 1 << 30  # bytes that the tensors of a kernel may have at a time, however small its inputs are
# What reads a generator: the reference has none, and no number of trials finds what is wrong once in a million.
RANDOM = frozenset({"rng", "rand2", "dropout", "rand_get_state"})
_PROBLEMS = {
    "missing": Reason.WRONG_ARITY,
    "shape": Reason.WRONG_SHAPE,
    "dtype": Reason.WRONG_DTYPE,
    "finite": Reason.NONFINITE,
    "untouched": Reason.UNTOUCHED_MODIFIED,
}


@dataclass(frozen=True)
class Drawn:
    """A trial with its arrays and what the reference makes of them."""

    trial: Trial
    inputs: Mapping[str, np.ndarray]
    want: Expected


def drawn(spec: OpSpec, trial: Trial) -> Drawn:
    """Draw a trial's inputs and run the reference. Raises SpecError if the reference fails."""
    inputs = draw(spec, trial)
    return Drawn(trial, inputs, expected(spec, spec.bind(trial.case), inputs, seed=_noise_seed(trial)))


def check_trace(spec: OpSpec, trace: Trace) -> None:
    """Everything that can be said without values: legality, effects, precision. Raises Failure."""
    check_legality(trace)
    _check_room(trace)
    _check_effects(spec, trace)
    _check_outputs(spec, trace)
    check_precision(trace, spec.accumulate)


def run(
    spec: OpSpec,
    trace: Trace,
    trial: Trial,
    inputs: Mapping[str, np.ndarray],
    *,
    steps: int = STEP_BUDGET,
    twice: bool = False,
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Execute a trace on a trial's inputs: results by name, and warnings. Raises Failure for dynamic rules.

    twice: a trace that reads memory of which parts are unwritten is executed again with other data in there; results
    that differ hold some of it, whatever the masks say.
    """
    arrays = list(inputs.values())
    done = dynamic(execute, trace, arrays, seed=_noise_seed(trial), steps=steps)
    got = _results(spec, trace, done)
    if twice and done.read_unwritten:
        found = np.random.default_rng(trial.seed)
        again = dynamic(execute, trace, arrays, seed=_noise_seed(trial), steps=steps, found=found)
        for name, values in _results(spec, trace, again).items():
            if values.tobytes() != got[name].tobytes():
                raise Failure(
                    Reason.UNWRITTEN_OUTPUT,
                    f"output {name} depends on what was in memory before: two executions on the same inputs differ",
                    fix="write every element that is read",
                )
    return got, tuple(f"line {line}: {text}" for line, text in done.warnings)


def judged(spec: OpSpec, case: Drawn, got: Mapping[str, np.ndarray]) -> tuple[Comparison, ...]:
    """Compare results with the reference, element by element.

    What is out by little under a coarse spread is judged again under a fine one: no refusal rests on a poor estimate.
    """
    bound = spec.bind(case.trial.case)
    found = compare(spec, bound, case.want, case.inputs, got)
    if case.want.coarse and any(_is_close_call(c) for c in found):
        want = expected(spec, bound, case.inputs, seed=_noise_seed(case.trial), fine=True)
        found = compare(spec, bound, want, case.inputs, got)
    return found


def _is_close_call(comparison: Comparison) -> bool:
    return comparison.problem in ("close", "row") and comparison.ratio < CLOSE_CALL


def _noise_seed(trial: Trial) -> int:
    return trial.seed % (1 << 32)


def require(spec: OpSpec, trace: Trace, comparisons: tuple[Comparison, ...]) -> None:
    """Raise Failure for the first comparison that is wrong, with the line that made the wrong element."""
    for comparison in comparisons:
        if not comparison.ok:
            found = _blame(spec, trace, comparison)
            raise Failure(
                reason(comparison),
                comparison.message,
                fix=f"look first at {_lines(found.lines[:6])}" if found else "",
                line=found.line if found else None,
            )


def _lines(numbers: Sequence[int]) -> str:
    """`line 3`, or `lines 9, 4 and 3`, in the order given: the likeliest first."""
    *others, last = map(str, numbers)
    return f"lines {', '.join(others)} and {last}" if others else f"line {last}"


def reason(comparison: Comparison) -> Reason:
    """The code of a comparison that is wrong."""
    return _PROBLEMS.get(comparison.problem, Reason.MISMATCH)


def _blame(spec: OpSpec, trace: Trace, comparison: Comparison) -> Blame | None:
    if comparison.problem not in ("close", "row", "exact", "ulp", "valid_choice", "finite", "untouched"):
        return None
    if comparison.output in spec.in_place:
        place = trace.inputs[list(spec.inputs).index(comparison.output)], 0
        shape = trace.buffers[place[0]].shape
    else:
        region = trace.outputs[_returned(spec, trace)[list(spec.outputs).index(comparison.output)]]
        shape, place = region.shape, (region.buffer, region.offset)

    def flat(index: tuple[int, ...]) -> int:
        return place[1] + int(np.ravel_multi_index(index, shape))

    right = None if comparison.right_at is None else flat(comparison.right_at)
    return blame(trace, place[0], flat(comparison.worst_at), right)


def check_legality(trace: Trace) -> None:
    """Static legality. Raises Failure."""
    try:
        legality.check(trace)
    except UnsupportedInstruction as error:
        raise Failure(Reason.UNSUPPORTED_INSTRUCTION, str(error), line=error.line) from error
    except LegalityError as error:
        raise Failure(Reason.ILLEGAL, error.what, fix=error.fix, line=error.line, rule=error.rule) from error


def _check_room(trace: Trace) -> None:
    """Whether the judge has memory for what the kernel holds at a time."""
    given = sum(b.free * ITEMSIZE[b.dtype] for b in (trace.buffers[i] for i in trace.inputs))
    wanted, room = held_bytes(trace), ROOM + 4 * given
    if wanted > room:
        raise Failure(
            Reason.MEMORY,
            f"the kernel holds {wanted:,} bytes in its tensors beside the inputs; the judge has room for {room:,}",
            fix="allocate no more than the outputs, scratch of their size, and tiles that fit the chip",
        )


def _check_effects(spec: OpSpec, trace: Trace) -> None:
    """What the kernel does and writes is what the spec declares."""
    names = dict(zip(trace.inputs, spec.inputs, strict=True))
    for program in trace.programs:
        for instr in walk(program.body):
            if instr.op in RANDOM:
                raise Failure(
                    Reason.RANDOM_NUMBERS,
                    f"{instr.op} makes the result depend on a generator that the spec does not know",
                    fix="compute what the spec says from its inputs alone",
                    line=instr.line,
                )
            for parameter in define(instr.op).writes:
                operand = instr.operands.get(parameter)
                name = names.get(operand.buffer) if operand is not None else None
                if name is not None and name not in spec.in_place:
                    raise Failure(
                        Reason.UNTOUCHED_MODIFIED,
                        f"{instr.op} writes the input {name}, which the spec does not declare in place",
                        fix="write to a tensor of your own",
                        line=instr.line,
                    )


def _check_outputs(spec: OpSpec, trace: Trace) -> None:
    """What the kernel returns are the spec's outputs: whole tensors, each its own."""
    names = dict(zip(trace.inputs, spec.inputs, strict=True))
    returned = _returned(spec, trace)
    if len(returned) != len(spec.outputs):
        wanted = ", ".join(spec.outputs) or "nothing"
        raise Failure(
            Reason.WRONG_ARITY,
            f"the kernel returns {len(trace.outputs)} tensors, the spec has {len(spec.outputs)} outputs ({wanted})",
            fix="return the spec's outputs in order; in-place inputs need not be returned",
        )
    own = "allocate it with nl.ndarray(..., buffer=nl.shared_hbm), write it, and return it as it is"
    for name, index in zip(spec.outputs, returned, strict=True):
        region = trace.outputs[index]
        buffer = trace.buffers[region.buffer]
        if buffer.id in names:
            raise Failure(Reason.WRONG_ARITY, f"output {name} is the input {names[buffer.id]} itself", fix=own)
        if sum(o.buffer == buffer.id for o in trace.outputs) > 1:
            raise Failure(Reason.WRONG_ARITY, f"output {name} shares its tensor with another output", fix=own)
        if not _is_whole(region, buffer):
            raise Failure(
                Reason.WRONG_SHAPE,
                f"output {name} is a view of a tensor of shape {list(buffer.shape)}: the device returns whole tensors, "
                "in the order in which they lie in memory",
                fix=own,
            )


def _is_whole(region: Operand, buffer: Buffer) -> bool:
    """Whether a returned region is all of its buffer in the buffer's own order; dimensions may be split or merged."""
    dense = zip(region.pattern, dense_strides(region.shape), strict=True)
    in_order = all(count == 1 or stride == wanted for (stride, count), wanted in dense)
    return in_order and (region.offset, region.size, region.dtype) == (0, buffer.free, buffer.dtype)


def _returned(spec: OpSpec, trace: Trace) -> list[int]:
    """Indices of the returned tensors that are outputs: in-place inputs in front may be returned or not."""
    positions = {trace.inputs[i] for i, name in enumerate(spec.inputs) if name in spec.in_place}
    leading = [i for i, o in enumerate(trace.outputs) if o.buffer in positions]
    if len(leading) == len(spec.in_place) == len(trace.outputs) - len(spec.outputs):
        return [i for i in range(len(trace.outputs)) if i not in leading]
    return list(range(len(trace.outputs)))


def _results(spec: OpSpec, trace: Trace, done: Execution) -> dict[str, np.ndarray]:
    after = dict(zip(spec.inputs, zip(done.inputs, done.poisoned, strict=True), strict=True))
    found = {name: after[name] for name in spec.in_place}
    for name, index in zip(spec.outputs, _returned(spec, trace), strict=True):
        found[name] = done.outputs[index], done.unwritten[index]
    for name, (_, unwritten) in found.items():
        if unwritten is not None:
            at = np.argwhere(unwritten)
            raise Failure(
                Reason.UNWRITTEN_OUTPUT,
                f"output {name}: {len(at):,} of {unwritten.size:,} elements hold unwritten data, first at "
                f"{at[0].tolist()}, last at {at[-1].tolist()}",
                fix="write every element; look at the last tile of each dimension",
            )
    return {name: values for name, (values, _) in found.items()}


def dynamic(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call something that may raise a dynamic rule; its refusal becomes a Failure."""
    try:
        return call(*args, **kwargs)
    except LegalityError as error:
        raise Failure(of_rule(error.rule), error.what, fix=error.fix, line=error.line, rule=error.rule) from error
