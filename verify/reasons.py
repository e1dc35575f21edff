"""Why a draft was refused: one code a kind of failure, in the order of the verdict's stages, each with its page.

The simulator's legality rules and the lint's rules have names and pages of their own; a verdict carries them beside
the code (`illegal` with rule `partition_limit`).
"""

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Reason codes of a verdict. The value is what `--json` prints and what the page is called."""

    PARSE = "parse"
    FORBIDDEN_IMPORT = "forbidden_import"
    FORBIDDEN_ACCESS = "forbidden_access"
    ENVIRONMENT_DEPENDENT = "environment_dependent"
    PYTHON_SUBSET = "python_subset"
    BULK_LITERALS = "bulk_literals"
    NO_ENTRY = "no_entry"
    WRONG_SIGNATURE = "wrong_signature"
    RAISED = "raised"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    CRASHED = "crashed"
    FORGED_TRACE = "forged_trace"
    NONDETERMINISTIC_TRACE = "nondeterministic_trace"
    UNSUPPORTED_INSTRUCTION = "unsupported_instruction"
    ILLEGAL = "illegal"
    PRECISION_DOWNGRADE = "precision_downgrade"
    RANDOM_NUMBERS = "random_numbers"
    OUT_OF_BOUNDS = "out_of_bounds"
    UNWRITTEN_OUTPUT = "unwritten_output"
    UNWRITTEN_READ = "unwritten_read"
    STEP_BUDGET = "step_budget"
    WRONG_ARITY = "wrong_arity"
    WRONG_SHAPE = "wrong_shape"
    WRONG_DTYPE = "wrong_dtype"
    NONFINITE = "nonfinite"
    MISMATCH = "mismatch"
    UNTOUCHED_MODIFIED = "untouched_modified"
    UNBOUND_SCALAR = "unbound_scalar"
    FASTER_THAN_POSSIBLE = "faster_than_possible"


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a person or a model needs to act on a code."""

    stage: str  # where it is usually found; a hidden shape can bring it up in `generalise`
    meaning: str
    cause: str
    fix: str


EXPLANATIONS: dict[Reason, Explanation] = {
    Reason.PARSE: Explanation(
        "parse",
        "The file is not Python that can be judged: a syntax error, another encoding than UTF-8, hidden or control "
        "characters, or nesting deeper or text longer than any kernel needs.",
        "A cut-off reply, Markdown fences left in the file, or a `# coding:` line that would make the same bytes mean "
        "something else on another machine.",
        "Write one complete UTF-8 Python file without a coding line.",
    ),
    Reason.FORBIDDEN_IMPORT: Explanation(
        "lint",
        "The source imports something that a kernel may not have.",
        "Computing in NumPy or PyTorch instead of recording instructions, or reaching for the operating system.",
        "Import only nki and its submodules, math, functools, dataclasses, enum and typing, and name what you import.",
    ),
    Reason.FORBIDDEN_ACCESS: Explanation(
        "lint",
        "The source reaches for something behind the API: a builtin that looks inside, a double-underscore name, an "
        "attribute that neither NKI nor the source defines, or a change to an object that is not its own.",
        "Introspection, patching, a private attribute of a tensor, or simply a misspelt name.",
        "Use documented names of NKI and what the file itself defines; see the rule's page for the allowed form.",
    ),
    Reason.ENVIRONMENT_DEPENDENT: Explanation(
        "lint",
        "The source could build another kernel in the simulator than on the device.",
        "Catching exceptions, deciding by the text of an object, or state that outlives a call.",
        "Let the kernel depend on nothing but its arguments' shapes and dtypes.",
    ),
    Reason.PYTHON_SUBSET: Explanation(
        "lint",
        "The construct is not Python that this Neuron SDK's kernel compiler takes.",
        "Before 2.33 the compiler parsed the source and knew only part of the language; from 2.33 on it runs it, and "
        "only control flow on run-time values and a few statements remain out.",
        "Write it in the form the rule's page shows, or target SDK 2.33.",
    ),
    Reason.BULK_LITERALS: Explanation(
        "lint",
        "The source holds more constant data than the spec allows.",
        "A table of results or weights written out, as numbers, text or one very large integer.",
        "Compute tables from a formula, or make them an input of the op.",
    ),
    Reason.NO_ENTRY: Explanation(
        "lint",
        "There is not exactly one function with the op's name, at the top level and under @nki.jit alone.",
        "A misspelt or missing function, a second definition, or a name bound again later.",
        "Define the kernel once, as `@nki.jit` and `def <op>(...)`.",
    ),
    Reason.WRONG_SIGNATURE: Explanation(
        "lint",
        "The entry point's parameters are not the spec's inputs, in order, and nothing else.",
        "Renamed, reordered or additional parameters, defaults, `*args`.",
        "Copy the signature from the task; make tile sizes constants of the module.",
    ),
    Reason.RAISED: Explanation(
        "record",
        "The source raised an exception while the kernel was built.",
        "A Python error, an unknown keyword of an instruction, an assertion on a shape that the spec allows, or "
        "Python control flow on a value that exists only at run time.",
        "Read the message and the line; a kernel must build for every shape of the spec's domain.",
    ),
    Reason.TIMEOUT: Explanation(
        "record",
        "Building the kernel took longer than any kernel should.",
        "A loop that does not end, or one that is unrolled into too many instructions.",
        "Use nl.fori_loop for long loops and process larger tiles.",
    ),
    Reason.MEMORY: Explanation(
        "record",
        "Building the kernel needed more memory than the child has, or its tensors need more than the judge has.",
        "Large Python objects, far too many instructions, or tensors that are much larger than what is used of them.",
        "Keep no data in Python; use nl.fori_loop for long loops; allocate what is used.",
    ),
    Reason.OUTPUT_LIMIT: Explanation(
        "record",
        "The recorded program is larger than the judge accepts.",
        "A long Python loop that is unrolled instruction by instruction.",
        "Use nl.fori_loop, whose body is recorded once, or larger tiles.",
    ),
    Reason.CRASHED: Explanation(
        "record",
        "The child that builds the kernel ended without an answer.",
        "Leaving the interpreter, recursion without end, or breaking it on purpose.",
        "Let the kernel return normally. If it is honest and small, report it with the file: then it is our bug.",
    ),
    Reason.FORGED_TRACE: Explanation(
        "record",
        "What came back is not a trace that the recorder could have written.",
        "The source wrote to the judge's pipe or into the recorder's data.",
        "Build the kernel through the API only.",
    ),
    Reason.NONDETERMINISTIC_TRACE: Explanation(
        "record",
        "Two fresh processes recorded different programs from the same source.",
        "The order of a set, an object's address in a name, or state kept between calls.",
        "Iterate over lists, tuples and ranges; name instructions by position; keep no state.",
    ),
    Reason.UNSUPPORTED_INSTRUCTION: Explanation(
        "record",
        "The source uses a name of NKI that this simulator does not define. It never guesses.",
        "A misspelt name, one from another SDK, or a part of NKI outside the simulator.",
        "Use an instruction from the cards in the prompt, or add its definition to the simulator.",
    ),
    Reason.ILLEGAL: Explanation(
        "legality",
        "The program breaks a rule of the hardware or of the API; the verdict names the rule.",
        "Shapes, memories, dtypes or capacities that an instruction does not take.",
        "Follow the rule's message: it names the operand, the limit and the way out.",
    ),
    Reason.PRECISION_DOWNGRADE: Explanation(
        "legality",
        "A sum is kept in a narrower dtype than the spec's `accumulate`.",
        "A bfloat16 tile that is added to in a loop, or as the result of a reduction.",
        "Accumulate in float32 (PSUM, or a float32 SBUF tile) and cast once, when storing.",
    ),
    Reason.OUT_OF_BOUNDS: Explanation(
        "execute",
        "An address that is known only at run time fell outside its tensor.",
        "An index tensor used with a wrong scale or offset, or a loop bound that is too large.",
        "Check offset = index x stride and the last iteration.",
    ),
    Reason.UNWRITTEN_OUTPUT: Explanation(
        "execute",
        "Memory that nothing had written reached an output, or part of an output was never written.",
        "The last partial tile, a branch without a store, or a tile that is read before it is filled.",
        "Write every element of every output for every shape, and fill tiles before reading them.",
    ),
    Reason.UNWRITTEN_READ: Explanation(
        "execute",
        "Memory that nothing had written was used as an index, a predicate or a loop bound.",
        "Loading a scalar from a tile before the copy into it, or from the wrong place.",
        "Copy the value in first, and load from the element that holds it.",
    ),
    Reason.STEP_BUDGET: Explanation(
        "execute",
        "The program executed more instructions than the case can need.",
        "A run-time loop that does not end, or whose bound is far too large.",
        "Check the loop's bound and condition.",
    ),
    Reason.RANDOM_NUMBERS: Explanation(
        "legality",
        "The kernel draws random numbers, of which neither the spec nor its reference knows anything.",
        "nl.rand, nl.dropout or an instruction of theirs; a result that is wrong once in a million draws passes tests.",
        "Compute the outputs from the inputs alone.",
    ),
    Reason.WRONG_ARITY: Explanation(
        "compare",
        "The kernel returned more or fewer tensors than the spec has outputs.",
        "A forgotten output, or an in-place input that is returned as if it were one.",
        "Return the spec's outputs in order, as one tensor or a tuple.",
    ),
    Reason.WRONG_SHAPE: Explanation(
        "compare",
        "An output has another shape than the spec says for this case.",
        "A padded, squeezed or transposed result.",
        "Allocate each output with the shape of the spec.",
    ),
    Reason.WRONG_DTYPE: Explanation(
        "compare",
        "An output has another dtype than the spec says for this case.",
        "A fixed float32 where the spec follows the input's dtype.",
        "Allocate each output with the dtype of the spec, often that of an input.",
    ),
    Reason.NONFINITE: Explanation(
        "compare",
        "The output has infinities or NaN where the reference has none, or the other way round.",
        "An exponential without subtracting the maximum, a reciprocal of zero, a missing epsilon.",
        "Scale before exponentials, add the spec's epsilon, and let infinities through where the spec has them.",
    ),
    Reason.MISMATCH: Explanation(
        "compare",
        "The output differs from the reference by more than rounding can explain.",
        "A wrong formula, a wrong tile or row, or work that holds for some shapes and values only.",
        "Look at where the worst elements are: one column, one row, the last tile.",
    ),
    Reason.UNTOUCHED_MODIFIED: Explanation(
        "compare",
        "The kernel changed memory that the spec does not let it change.",
        "Writing into an input, or outside the part of an in-place input that the op updates.",
        "Write to the outputs and to the updated part of in-place inputs only.",
    ),
    Reason.UNBOUND_SCALAR: Explanation(
        "profile",
        "The schedule needs the value of a run-time scalar that the case does not give.",
        "A loop bound or offset that does not come from the spec's control inputs.",
        "Derive loop bounds from shapes or from the spec's `control` tensors.",
    ),
    Reason.FASTER_THAN_POSSIBLE: Explanation(
        "profile",
        "The modelled latency is below the floor that the op's own work sets on this target.",
        "Work that is not done, or a gap in our cost model. Either way it is no result.",
        "Check that all inputs are read and all outputs computed; otherwise report it.",
    ),
}

_OF_RULE = {
    "dynamic_bounds": Reason.OUT_OF_BOUNDS,
    "step_budget": Reason.STEP_BUDGET,
    "unwritten_index": Reason.UNWRITTEN_READ,
    "unwritten_scalar": Reason.UNWRITTEN_READ,
    "unwritten_output": Reason.UNWRITTEN_OUTPUT,
    "unbound_scalar": Reason.UNBOUND_SCALAR,
}


def of_rule(name: str) -> Reason:
    """The reason that a verdict gives when a legality rule refuses the draft."""
    return _OF_RULE.get(name, Reason.ILLEGAL)
