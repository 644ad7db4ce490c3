"""Machine instructions that Python lacks: unaligned loads, byte order, searches in 64 bytes, and a call of ISA-L.

Each is one LLVM operation, inlined into the kernel that uses it. Positions are int64 and are not checked: the caller
ensures that every accessed byte is within its array.

The host is little-endian (x86-64, AArch64). Source: LLVM's language reference.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic as _numba_intrinsic

_I1, _I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
_WINDOW = ir.VectorType(_I8, 64)
_BLOCK = ir.VectorType(_I8, 16)
WINDOW = 64  # bytes that match_window examines
BLOCK = 16  # bytes that hash_block covers
CACHE_LINE = 64


def intrinsic(function: Callable[..., Any]) -> Any:
    """Apply Numba's decorator. Its result is called with one argument fewer than ``function`` has."""
    return _numba_intrinsic(function)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, at: Any, pointee: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), pointee.as_pointer())


def _make_load(bits: int, result: Any, *, big_endian: bool) -> Any:
    def load(typing_context: Any, buf: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1], ir.IntType(bits))
            value = builder.load(pointer, align=1)
            if big_endian:
                value = builder.bswap(value)
            extend = builder.sext if result.signed else builder.zext
            return value if bits == 64 else extend(value, _I64)

        return result(buf, types.int64), generate

    return intrinsic(load)


def _make_store(bits: int) -> Any:
    def store(typing_context: Any, buf: Any, at: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1], ir.IntType(bits))
            value = args[2] if bits == 64 else builder.trunc(args[2], ir.IntType(bits))
            builder.store(builder.bswap(value), pointer, align=1)
            return context.get_dummy_value()

        return types.void(buf, types.int64, types.int64), generate

    return intrinsic(store)


load_i16 = _make_load(16, types.int64, big_endian=True)  # (buf, at): two big-endian bytes, signed
load_i32 = _make_load(32, types.int64, big_endian=True)
load_i64 = _make_load(64, types.int64, big_endian=True)
load_word = _make_load(64, types.uint64, big_endian=False)  # eight bytes in memory order
load_half_word = _make_load(32, types.uint64, big_endian=False)
store_i16 = _make_store(16)  # (buf, at, value): the low bits of value, big-endian
store_i32 = _make_store(32)
store_i64 = _make_store(64)


@intrinsic
def copy(typing_context: Any, target: Any, target_at: Any, source: Any, source_at: Any, length: Any) -> Any:
    """Copy ``length`` bytes between arrays that do not overlap."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = _pointer(context, builder, signature.args[0], args[0], args[1], _I8)
        come_from = _pointer(context, builder, signature.args[2], args[2], args[3], _I8)
        arguments = [_I8.as_pointer(), _I8.as_pointer(), _I64, _I1]
        function = _function(builder, "llvm.memcpy.p0.p0.i64", ir.VoidType(), arguments)
        builder.call(function, [to, come_from, args[4], _I1(0)])
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


@intrinsic
def prefetch(typing_context: Any, array: Any, at: Any) -> Any:
    """Prefetch the cache line of element ``at``. A position outside of the array is harmless."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        pointer = builder.bitcast(builder.gep(data, [args[1]]), _I8.as_pointer())
        arguments = [_I8.as_pointer(), _I32, _I32, _I32]
        function = _function(builder, "llvm.prefetch.p0", ir.VoidType(), arguments)
        builder.call(function, [pointer, _I32(0), _I32(3), _I32(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@intrinsic
def match_window(typing_context: Any, buf: Any, at: Any, byte: Any) -> Any:
    """Return which of the ``WINDOW`` bytes from ``at`` equal ``byte``: bit i of the uint64 is for byte at + i."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        window = _load_vector(context, builder, signature, args, _WINDOW)
        wanted = _repeat(builder, builder.trunc(args[2], _I8), _WINDOW)
        return builder.bitcast(builder.icmp_unsigned("==", window, wanted), _I64)

    return types.uint64(buf, types.int64, types.int64), generate


@intrinsic
def non_ascii_window(typing_context: Any, buf: Any, at: Any) -> Any:
    """Return which of the ``WINDOW`` bytes from ``at`` are above 0x7f, as in :func:`match_window`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        window = _load_vector(context, builder, signature, args, _WINDOW)
        return builder.bitcast(builder.icmp_signed("<", window, ir.Constant(_WINDOW, [0] * 64)), _I64)

    return types.uint64(buf, types.int64), generate


@intrinsic
def hash_block(typing_context: Any, buf: Any, at: Any, skipped: Any) -> Any:
    """Return the sum of 31**(15 - i) * byte(at + i) over i from ``skipped`` to 15, as a uint64 of 32 bits.

    For ASCII bytes that is Java's String.hashCode; leading zeros do not change it.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.VectorType(_I32, BLOCK)
        block = builder.zext(_load_vector(context, builder, signature, args, _BLOCK), wide)
        first = _repeat(builder, builder.trunc(args[2], _I32), wide)
        counts = builder.icmp_signed(">=", ir.Constant(wide, list(range(BLOCK))), first)
        powers = ir.Constant(wide, [31 ** (BLOCK - 1 - i) % 2**32 for i in range(BLOCK)])
        terms = builder.mul(builder.select(counts, block, ir.Constant(wide, [0] * BLOCK)), powers)
        add = _function(builder, "llvm.vector.reduce.add.v16i32", _I32, [wide])
        return builder.zext(builder.call(add, [terms]), _I64)

    return types.uint64(buf, types.int64, types.int64), generate


def _repeat(builder: Any, value: Any, vector: Any) -> Any:
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, _I32(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_I32, vector.count), [0] * vector.count))


def _function(builder: Any, name: str, result: Any, arguments: Any) -> Any:
    module: Any = builder.module
    return module.globals.get(name) or ir.Function(module, ir.FunctionType(result, arguments), name)


def _load_vector(context: Any, builder: Any, signature: Any, args: Any, vector: Any) -> Any:
    return builder.load(_pointer(context, builder, signature.args[0], args[0], args[1], vector), align=1)


@intrinsic
def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """Return how many zero bits ``word`` (uint64) ends with; 64 if it is 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], _I1(0))

    return types.int64(types.uint64), generate


@intrinsic
def crc32_gzip_refl(typing_context: Any, buf: Any, at: Any, length: Any) -> Any:
    """Return ISA-L's CRC-32 of ``length`` bytes from ``at`` as a uint32.

    This is the only external function that kernels call. ``jit`` and ``loader`` make the symbol of the package ``isal``
    known to LLVM and to the system's loader.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        begin = _pointer(context, builder, signature.args[0], args[0], args[1], _I8)
        function = _function(builder, "crc32_gzip_refl", _I32, [_I32, _I8.as_pointer(), _I64])
        return builder.call(function, [_I32(0), begin, args[2]])

    return types.uint32(buf, types.int64, types.int64), generate
