"""C's mathematical functions in GLSL: by another name, or written out. In `HELPERS`, T is float or double."""

from __future__ import annotations

import re

_SAME = """exp exp2 log log2 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sqrt floor ceil trunc sign fract step
smoothstep fma isnan isinf""".split()
_OTHER = {"rsqrt": "inversesqrt", "fabs": "abs", "fmin": "min", "fmax": "max", "atan2": "atan", "rint": "roundEven"}
# None: a helper function.
FLOAT_FUNCTIONS: dict[str, str | None] = {
    **{name: name for name in _SAME},
    **_OTHER,
    **dict.fromkeys("""round cbrt exp10 expm1 log10 log1p pow fmod hypot copysign fdim mix isfinite signbit""".split()),
}
DOUBLE_FUNCTIONS: dict[str, str | None] = {
    **{name: name for name in "sqrt floor ceil trunc sign fract step smoothstep fma isnan isinf".split()},
    **{name: other for name, other in _OTHER.items() if name != "atan2"},
    **dict.fromkeys("round fmod hypot copysign fdim mix isfinite".split()),
    "abs": "abs",
}
HELPERS = {
    "round": "T kk_round(T x) {\n    const T t = trunc(x);\n    return abs(x - t) >= T(0.5) ? t + sign(x) : t;\n}",
    "cbrt": "T kk_cbrt(T x) {\n    const T root = sign(x) * pow(abs(x), T(1.0) / T(3.0));\n"
    "    return x == T(0.0) || isinf(x) ? x : root - (root * root * root - x) / (T(3.0) * root * root);\n}",
    "exp10": "T kk_exp10(T x) { return pow(T(10.0), x); }",
    # Near 0 by their series, which loses no digits.
    "expm1": "T kk_expm1(T x) {\n    if (abs(x) > T(0.5)) return exp(x) - T(1.0);\n    T sum = T(1.0);\n"
    "    for (int k = 9; k > 1; k--) sum = T(1.0) + sum * x / T(k);\n    return sum * x;\n}",
    "log10": "T kk_log10(T x) { return log2(x) * T(0.30102999566); }",
    "log1p": "T kk_log1p(T x) {\n    if (abs(x) > T(0.4)) return log(T(1.0) + x);\n    const T s = x / (T(2.0) + x);\n"
    "    T sum = T(0.0);\n    for (int k = 13; k > 0; k -= 2) sum = sum * s * s + T(1.0) / T(k);\n"
    "    return T(2.0) * s * sum;\n}",
    "pow": "T kk_pow(T x, T y) {\n    if (y == T(0.0) || x == T(1.0)) return T(1.0);\n"
    "    const T size = pow(abs(x), y);\n    if (x >= T(0.0)) return size;\n"
    "    if (y != trunc(y)) return isnan(x) ? x : T(uintBitsToFloat(0x7fc00000u));\n"
    "    return fract(y * T(0.5)) != T(0.0) ? -size : size;\n}",
    # Subtracts the multiples of y by powers of two, the largest first: each step is exact.
    "fmod": "T kk_fmod(T x, T y) {\n    T rest = abs(x);\n    const T size = abs(y);\n"
    "    if (isinf(x) || isnan(x) || isnan(y) || y == T(0.0)) return T(uintBitsToFloat(0x7fc00000u));\n"
    "    if (isinf(y)) return x;\n    int rest_exponent, size_exponent;\n"
    "    frexp(rest, rest_exponent);\n    frexp(size, size_exponent);\n"
    "    for (int k = rest_exponent - size_exponent; k >= 0; k--) {\n        const T part = ldexp(size, k);\n"
    "        if (rest >= part) rest -= part;\n    }\n    return x < T(0.0) ? -rest : rest;\n}",
    "hypot": "T kk_hypot(T x, T y) {\n    const T large = max(abs(x), abs(y));\n    const T small = min(abs(x), abs(y));\n"
    "    if (large == T(0.0) || isinf(large)) return large;\n"
    "    const T ratio = small / large;\n    return large * sqrt(T(1.0) + ratio * ratio);\n}",
    "copysign": "T kk_copysign(T x, T y) { return (y < T(0.0) || T(1.0) / y < T(0.0)) ? -abs(x) : abs(x); }",
    "fdim": "T kk_fdim(T x, T y) { return x > y ? x - y : isnan(x) ? x : isnan(y) ? y : T(0.0); }",
    "mix": "T kk_mix(T a, T b, T t) { return a + (b - a) * t; }",
    "isfinite": "bool kk_isfinite(T x) { return !isnan(x) && !isinf(x); }",
    "signbit": "bool kk_signbit(T x) { return int(floatBitsToUint(x) >> 31) != 0; }",
}


def helper_text(name: str, kind: str) -> str:
    """A helper function for "float" or "double"."""
    text = re.sub(r"\bT\((-?[\d.]+)\)", r"\1lf" if kind == "double" else r"\1", HELPERS[name])
    return re.sub(r"\bT\b", kind, text)
