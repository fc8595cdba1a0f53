"""Names in the written text: the user's own, but for those that mean something in the target already."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from ..builtins import BUILTINS

_C = """
auto bool break case char const continue default do double else enum extern false float for goto if inline int long
register restrict return short signed sizeof static struct switch true typedef union unsigned void volatile while main
NULL assert printf
"""
_CUDA = """
alignas alignof and and_eq asm bitand bitor catch char8_t char16_t char32_t class co_await co_return co_yield compl
concept const_cast consteval constexpr constinit decltype delete dynamic_cast explicit export friend mutable namespace
new noexcept not not_eq nullptr operator or or_eq private protected public reinterpret_cast requires static_assert
static_cast template this thread_local throw try typeid typename typeof using virtual wchar_t xor xor_eq
threadIdx blockIdx blockDim gridDim warpSize dim3 uint3 llabs labs j0 j1 jn y0 y1 yn lgamma tgamma erf erfc frexp ldexp
modf remainder remquo logb ilogb scalbn nextafter nan llrint llround lrint lround ilogbf llrintf llroundf lrintf lroundf
clock clock64 memcpy memset malloc free size_t ptrdiff_t uint ushort ulong uchar std cuda sinpi cospi sincos powi norm rnorm
saturate CHAR_BIT INT_MAX INT_MIN UINT_MAX FLT_MAX FLT_MIN DBL_MAX DBL_MIN M_PI M_E INFINITY NAN
"""
_OPENCL = """
HUGE_VAL HUGE_VALF INFINITY MAXFLOAT NAN get_global_id get_global_size get_group_id get_local_id get_local_size
get_num_groups get_work_dim get_global_offset complex constant event_t generic global half imaginary kernel local pipe
private quad read_only read_write sampler_t size_t intptr_t uintptr_t ptrdiff_t uchar uint ulong ushort write_only barrier
mem_fence read_mem_fence write_mem_fence atomic_add atomic_sub atomic_min atomic_max atomic_and atomic_or atomic_xor
atomic_xchg atomic_cmpxchg atomic_inc atomic_dec vload_half vstore_half vload4 vstore4 select shuffle any all isequal
isnotequal isless isgreater isnormal bitselect upsample rotate hadd rhadd mul24 mad24 mad_hi mul_hi mad_sat add_sat
sub_sat abs_diff ctz sincos sinpi cospi tanpi asinpi acospi atanpi atan2pi pown rootn remainder remquo modf frexp ldexp
logb ilogb nextafter nan lgamma lgamma_r tgamma erf erfc maxmag minmag fast_length fast_distance fast_normalize
image1d_t image2d_t image3d_t image1d_array_t image2d_array_t image1d_buffer_t image2d_depth_t
image2d_array_depth_t image2d_msaa_t image2d_array_msaa_t memory_order memory_scope atomic_int atomic_uint atomic_long
atomic_ulong atomic_float atomic_double atomic_flag atomic_size_t reserve_id_t cl_mem_fence_flags queue_t clk_event_t
ndrange_t kernel_exec event wait_group_events prefetch async_work_group_copy vec_step as_type linux unix
FLT_MAX FLT_MIN FLT_EPSILON DBL_MAX DBL_MIN INT_MAX INT_MIN UINT_MAX CHAR_BIT M_PI M_E M_PI_F M_E_F
"""
_GLSL = """
active asm atomic_uint attribute buffer cast centroid class coherent column_major common discard external filter fixed
flat goto half highp hvec2 hvec3 hvec4 in inout input interface invariant layout lowp mediump namespace noinline
noperspective out output packed partition patch precise precision public readonly resource row_major sample shared smooth
subroutine superp template this uint uniform using varying volatile writeonly sizeof
vec2 vec3 vec4 ivec2 ivec3 ivec4 uvec2 uvec3 uvec4 bvec2 bvec3 bvec4 dvec2 dvec3 dvec4 fvec2 fvec3 fvec4 mat2 mat3 mat4
mat2x2 mat2x3 mat2x4 mat3x2 mat3x3 mat3x4 mat4x2 mat4x3 mat4x4 dmat2 dmat3 dmat4
dmat2x2 dmat2x3 dmat2x4 dmat3x2 dmat3x3 dmat3x4 dmat4x2 dmat4x3 dmat4x4
int64_t uint64_t i64vec2 i64vec3 i64vec4 u64vec2 u64vec3 u64vec4
barrier memoryBarrier memoryBarrierShared memoryBarrierBuffer groupMemoryBarrier atomicAdd atomicMin atomicMax atomicAnd
atomicOr atomicXor atomicExchange atomicCompSwap mod modf frexp ldexp inversesqrt faceforward reflect refract outerProduct
transpose determinant inverse lessThan lessThanEqual greaterThan greaterThanEqual equal notEqual any all not
bitfieldExtract bitfieldInsert bitfieldReverse bitCount findLSB findMSB uaddCarry usubBorrow umulExtended imulExtended
roundEven texture textureSize texelFetch noise1 noise2 noise3 noise4 dFdx dFdy fwidth floatBitsToInt floatBitsToUint
intBitsToFloat uintBitsToFloat packHalf2x16 unpackHalf2x16 packDouble2x32 unpackDouble2x32 packUnorm2x16
imageLoad imageStore imageAtomicAdd imageAtomicMin imageAtomicMax imageAtomicAnd imageAtomicOr imageAtomicXor
imageAtomicExchange imageAtomicCompSwap matrixCompMult samplerExternalOES
"""
_WGSL = """
alias break case const const_assert continue continuing default diagnostic discard else enable false fn for if let loop
override requires return struct switch true var while
NULL Self abstract active alignas alignof as asm asm_fragment async attribute auto await become cast catch class co_await
co_return co_yield coherent column_major common compile compile_fragment concept const_cast consteval constexpr constinit
crate debugger decltype delete demote demote_to_helper do dynamic_cast enum explicit export extends extern external
fallthrough filter final finally friend from fxgroup get goto groupshared highp impl implements import inline instanceof
interface layout lowp macro macro_rules match mediump meta mod module move mut mutable namespace new nil noexcept noinline
nointerpolation non_coherent noncoherent noperspective null nullptr of operator package packoffset partition pass patch
pixelfragment precise precision premerge priv protected pub public readonly ref regardless register reinterpret_cast require
resource restrict self set shared sizeof smooth snorm static static_assert static_cast std subroutine super target template
this thread_local throw trait try type typedef typeid typename typeof union unless unorm unsafe unsized use using varying
virtual volatile wgsl where with writeonly yield
bool i32 u32 f32 f16 vec2 vec3 vec4 mat2x2 mat2x3 mat2x4 mat3x2 mat3x3 mat3x4 mat4x2 mat4x3 mat4x4 array atomic ptr sampler
texture_2d function private workgroup uniform storage read write read_write
select bitcast all any arrayLength countLeadingZeros countOneBits countTrailingZeros extractBits insertBits reverseBits
firstLeadingBit firstTrailingBit inverseSqrt frexp ldexp modf quantizeToF16 saturate transpose determinant reflect refract
outerProduct faceForward pack2x16float unpack2x16float dpdx dpdy fwidth workgroupBarrier storageBarrier textureLoad
atomicLoad atomicStore atomicAdd atomicSub atomicMin atomicMax atomicAnd atomicOr atomicXor atomicExchange
atomicCompareExchangeWeak main vec2f vec3f vec4f vec2i vec3i vec4i vec2u vec3u vec4u
"""
_WORDS = {"cuda": _C + _CUDA, "opencl": _C + _OPENCL, "glsl": _C + _GLSL, "wgsl": _WGSL}
_VECTORS = "char uchar short ushort int uint long ulong half float double bool"
# What the names of macros begin with that targets define: CLK_LOCAL_MEM_FENCE, FLT_DIG, GL_core_profile.
_MACROS = tuple("kk_ gl_ GL_ CL_ CLK_ POCL_ FLT_ DBL_ LDBL_ HALF_ M_ FP_ INT_ CUDA_".split())
# What the names of vector types begin with in a target, where it has names such as float4 at all.
_PREFIXES = {"cuda": ("", "make_"), "opencl": ("", "as_", "convert_"), "glsl": (), "wgsl": ()}
# Of GLSL's samplers and images.
_TEXTURES = "sampler isampler usampler image iimage uimage".split()
_SHAPES = "1D 2D 3D Cube 2DRect 3DRect 1DArray 2DArray CubeArray Buffer 2DMS 2DMSArray".split()
_LIMITED = "CHAR SCHAR UCHAR SHRT USHRT INT UINT LONG ULONG"  # each with _MAX and _MIN in OpenCL C
_CUDA_ATOMICS = "Add Sub Min Max And Or Xor Exch CAS Inc Dec"


@cache
def reserved_words(target: str) -> frozenset[str]:
    """The names that nothing of the user may have in a target."""
    found = set(_WORDS[target].split())
    found.update(name for name in BUILTINS if not name.startswith(("kk_", "__")))
    if target == "opencl":
        found.update(f"convert_{kind}" for kind in _VECTORS.split())
        found.update(f"{kind}_{limit}" for kind in _LIMITED.split() for limit in ("MAX", "MIN"))
    for prefix in _PREFIXES[target]:
        found.update(f"{prefix}{kind}{length}" for kind in _VECTORS.split() for length in (1, 2, 3, 4, 8, 16))
    if target == "glsl":
        found.update(f"{kind}{shape}" for kind in _TEXTURES for shape in _SHAPES)
        found.update(f"sampler{shape}Shadow" for shape in _SHAPES)
    if target == "cuda":
        found.update(f"atomic{name}" for name in _CUDA_ATOMICS.split())
    return frozenset(found)


class Names:
    """Gives each name of a module one that is free in the target."""

    def __init__(self, reserved: frozenset[str], ordinary: Iterable[str], tags: Iterable[str] = ()) -> None:
        self._reserved = reserved
        self._ordinary = frozenset(ordinary)
        self._taken = {*self._ordinary, *tags}
        self._tags: dict[str, str] = {}
        self._known: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._derived: dict[str, str] = {}

    def free(self, name: str) -> str:
        """`name`, or where the target reserves it, `name_`."""
        found = self._known.get(name)
        if found is None:
            found = name
            if name in self._reserved or _is_ours(name):
                plain = name if name.isascii() else "".join(map(_in_ascii, name))
                found = self._unused("_".join(filter(None, plain.split("_"))) + "_")
                if found.startswith(_MACROS):
                    found = self._unused("own_" + found)
            self._known[name] = found
        return found

    def tag(self, name: str) -> str:
        """A struct's name. In C `struct x` and a variable `x` are two names; in the targets they are not."""
        if name not in self._ordinary:
            return self.free(name)
        if name not in self._tags:
            self._tags[name] = self._unused(f"{self.free(name)}_2")
        return self._tags[name]

    def other(self, name: str) -> str:
        """A name like `name` that is used for nothing else."""
        return self._unused(f"{name}_2")

    def derived(self, name: str) -> str:
        """A name that was made from one of the user's, or another like it where the user has that one, too."""
        found = self._derived.get(name)
        if found is None:
            found = self._derived[name] = self._unused(name)
        return found

    def new(self, stem: str) -> str:
        """A name for something that the user did not name: `old_1`, `old_2`."""
        while True:
            count = self._counts[stem] = self._counts.get(stem, 0) + 1
            found = f"{stem}_{count}"
            if found not in self._taken and found not in self._reserved:
                self._taken.add(found)
                return found

    def _unused(self, name: str) -> str:
        while name in self._taken or name in self._reserved:
            stem, _, count = name.rpartition("_")
            name = f"{stem}_{int(count) + 1}" if count.isdigit() else f"{name}2" if name.endswith("_") else f"{name}_2"
        self._taken.add(name)
        return name


def _is_ours(name: str) -> bool:
    """Whether a name is of a form that writers or targets keep for themselves."""
    if name.startswith(_MACROS) or "__" in name or (name[0] == "_" and name[1:2].isupper()):
        return True
    return not name.isascii()


def _in_ascii(letter: str) -> str:
    return letter if letter.isascii() else f"_u{ord(letter):x}_"
