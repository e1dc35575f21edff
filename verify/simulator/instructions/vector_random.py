"""Random numbers: VectorE and GpSimdE each have a generator whose state persists between instructions."""

import numpy as np

from nkismith.verify.simulator.dtypes import FLOATS, INTEGERS
from nkismith.verify.simulator.enums import engine
from nkismith.verify.simulator.instruction import (
    ENUM,
    NUMBERS,
    ON_CHIP,
    SBUF,
    instruction,
    out,
    tile,
    vector,
)
from nkismith.verify.simulator.instructions.accumulators import lanes_of
from nkismith.verify.simulator.instructions.checks import (
    FLOAT_VECTOR,
    check_same_dtype,
    check_same_elements,
    check_vectors,
)
from nkismith.verify.simulator.instructions.xorwow import STREAMS, WORDS, generator, uniform

VECTOR = engine.vector
GPSIMD = engine.gpsimd
RANDOM_INTEGERS = INTEGERS - {"int64", "uint64"}
RAND2_DTYPES = RANDOM_INTEGERS | {"float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32", "tfloat32"}
SEED_DTYPES = frozenset({"uint32", "int32", "float32"})
UINT32 = frozenset({"uint32"})


@instruction(
    engines=("vector", "gpsimd"),
    taint="elementwise",
    limits=("dst: an integer dtype", "GpSimdE: SBUF only"),
)
class rng:
    """32 random bits an element, truncated to the low bits of the dtype."""

    def signature(dst: out(dtypes=RANDOM_INTEGERS), engine: ENUM = VECTOR): ...

    def run(m, site):
        words = generator(m, site.engine).draw(lanes_of(m, site, "dst"), site.free("dst"))
        m.put_raw("dst", words.astype(f"u{m.view('dst').dtype.itemsize}").view(m.view("dst").dtype))


@instruction(
    engines=("vector",), taint="rows", targets=("trn3",), limits=("min and max: numbers or (P, 1) float32 tiles",)
)
class rand2:
    """Uniform random numbers between min and max (XORWOW), computed in float32 and cast to dst."""

    def signature(
        dst: out(dtypes=RAND2_DTYPES), min: vector(dtypes=FLOAT_VECTOR), max: vector(dtypes=FLOAT_VECTOR)
    ): ...

    def check(site):
        check_vectors(site, "dst")
        low, high = site.attr("min"), site.attr("max")
        if isinstance(low, int | float) and isinstance(high, int | float) and not low < high:
            raise site.refuse("random_range", f"min={low}, max={high}", "min below max")

    def run(m, site):
        low, high = m.vector("min"), m.vector("max")
        words = generator(m, "vector").draw(lanes_of(m, site, "dst"), site.free("dst"))
        m.put("dst", low + (high - low) * uniform(words))


@instruction(
    engines=("vector",),
    taint="elementwise",
    limits=("dst has the dtype of data", "prob: a number in 0..1 or a (P, 1) tile, float32 if data is integer"),
    cost="max(64, N)",
)
class dropout:
    """dst = data with each element replaced by 0 with probability prob; the others stay as they are, not rescaled."""

    def signature(dst: out(dtypes=NUMBERS), data: tile(dtypes=NUMBERS), prob: vector()): ...

    def check(site):
        check_same_elements(site, "dst", "data")
        check_same_dtype(site, "data", "dst")
        check_vectors(site, "data")
        if site.has("prob"):
            wanted = FLOATS if site.dtype("data") in FLOATS else FLOAT_VECTOR
            if site.dtype("prob") not in wanted:
                raise site.refuse("dtype", f"prob is {site.dtype('prob')}", f"one of {', '.join(sorted(wanted))}")
        elif not isinstance(site.attr("prob"), int | float) or not 0 <= site.attr("prob") <= 1:
            raise site.refuse("random_range", f"prob={site.attr('prob')}", "0 to 1")

    def run(m, site):
        chance = uniform(generator(m, "vector").draw(lanes_of(m, site, "data"), site.free("data")))
        data = m.raw("data")
        m.put_raw("dst", np.where(chance < m.vector("prob"), np.zeros((), data.dtype), data))


@instruction(engines=("vector",), limits=("src_seeds: a [1, 1] tile of 32 bits",))
class set_rng_seed:
    """Seed the generator of VectorE: the same seed gives the same numbers."""

    def signature(src_seeds: tile(dtypes=SEED_DTYPES)): ...

    def check(site):
        if site.operand("src_seeds").size != 1:
            raise site.refuse("operand_shapes", f"src_seeds is {site.shape('src_seeds')}", "a [1, 1] tile")

    def run(m, site):
        refuse_unwritten(m, site, "src_seeds")
        bits = np.ascontiguousarray(m.raw("src_seeds")).view(np.uint32)
        generator(m, "vector").seed(int(bits[0, 0]))


def refuse_unwritten(m, site, name):
    """A generator's state is a register: unwritten data does not go in."""
    if m.taint(name) is not None:
        raise site.refuse("unwritten_scalar", f"{name} holds elements that nothing wrote", "fill it")


def check_state(site, name):
    """A uint32 tile with the words of an engine's generator in each lane."""
    if site.engine == "vector" and site.target.generation < 4:
        raise site.refuse("engine", f"the generator of VectorE on {site.target.name}", "engine=gpsimd")
    words = STREAMS[site.engine] * WORDS
    if len(site.shape(name)) != 2 or site.free(name) != words:
        raise site.refuse("operand_shapes", f"{name} is {site.shape(name)}", f"(P, {words}) for {site.engine}")


@instruction(engines=("gpsimd", "vector"), limits=("src_seeds: (P, 6) for GpSimdE, (P, 24) for VectorE (trn3)",))
class rand_set_state:
    """Set the generator state of each lane from the words in its partition."""

    def signature(src_seeds: tile(SBUF, UINT32), engine: ENUM = GPSIMD): ...

    def check(site):
        check_state(site, "src_seeds")

    def run(m, site):
        refuse_unwritten(m, site, "src_seeds")
        state = generator(m, site.engine).state[lanes_of(m, site, "src_seeds")]
        state[...] = m.raw("src_seeds").reshape(state.shape)


@instruction(
    engines=("gpsimd", "vector"),
    taint="elementwise",
    limits=("dst: (P, 6) for GpSimdE, (P, 24) for VectorE (trn3)", "PSUM on trn3 only"),
)
class rand_get_state:
    """Store the generator state of each lane in its partition."""

    def signature(dst: out(ON_CHIP, UINT32), engine: ENUM = GPSIMD): ...

    def check(site):
        check_state(site, "dst")

    def run(m, site):
        state = generator(m, site.engine).state[lanes_of(m, site, "dst")]
        m.put_raw("dst", state.reshape(len(state), -1))
