"""C's mathematical functions in WGSL: by another name, or written out."""

from __future__ import annotations

_SAME = """exp exp2 log log2 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sqrt floor ceil trunc sign fract step
smoothstep fma atan2 min max clamp""".split()
# None: a helper function.
FUNCTIONS: dict[str, str | None] = {
    **{name: name for name in _SAME},
    "rsqrt": "inverseSqrt", "fabs": "abs", "fmin": "min", "fmax": "max", "rint": "round", "popcount": "countOneBits",
    "clz": "countLeadingZeros",
    **dict.fromkeys(
        """round cbrt exp10 expm1 log10 log1p pow fmod hypot copysign fdim mix isnan isinf isfinite signbit""".split()
    ),
}  # fmt: skip
TO_INTEGER = {
    "kk_to_i32": """fn kk_to_i32(x: f32) -> i32 {
    if (x >= 2147483648.0f) { return 2147483647; }
    if (x > -2147483648.0f) { return i32(x); }
    return select(i32(-2147483648), 0, (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u);
}""",
    "kk_to_u32": """fn kk_to_u32(x: f32) -> u32 {
    if (x >= 4294967296.0f) { return 4294967295u; }
    if (x > 0.0f) { return u32(x); }
    return 0u;
}""",
}
HELPERS = {
    "round": """fn kk_round(x: f32) -> f32 {
    let t = trunc(x);
    return select(t, t + sign(x), abs(x - t) >= 0.5f);
}""",
    "cbrt": """fn kk_cbrt(x: f32) -> f32 {
    if (x == 0.0f) { return x; }
    let root = sign(x) * pow(abs(x), 0.33333334f);
    return root - (root * root * root - x) / (3.0f * root * root);
}""",
    "exp10": "fn kk_exp10(x: f32) -> f32 { return pow(10.0f, x); }",
    # Near 0 by their series, which loses no digits.
    "expm1": """fn kk_expm1(x: f32) -> f32 {
    if (abs(x) > 0.5f) { return exp(x) - 1.0f; }
    var sum = 1.0f;
    for (var k = 9; k > 1; k--) { sum = 1.0f + sum * x / f32(k); }
    return sum * x;
}""",
    "log10": "fn kk_log10(x: f32) -> f32 { return log2(x) * 0.30103f; }",
    "log1p": """fn kk_log1p(x: f32) -> f32 {
    if (abs(x) > 0.4f) { return log(1.0f + x); }
    let s = x / (2.0f + x);
    var sum = 0.0f;
    for (var k = 13; k > 0; k -= 2) { sum = sum * s * s + 1.0f / f32(k); }
    return 2.0f * s * sum;
}""",
    "pow": """fn kk_pow(x: f32, y: f32) -> f32 {
    if (y == 0.0f || x == 1.0f) { return 1.0f; }
    let size = pow(abs(x), y);
    if (x >= 0.0f) { return size; }
    if (y != trunc(y)) { return sqrt(x); }
    return select(size, -size, fract(y * 0.5f) != 0.0f);
}""",
    "fmod": """fn kk_fmod(x: f32, y: f32) -> f32 {
    var rest = abs(x);
    let size = abs(y);
    if (size == 0.0f) { return x / y; }
    for (var k = frexp(rest).exp - frexp(size).exp; k >= 0; k--) {
        let part = ldexp(size, k);
        if (rest >= part) { rest -= part; }
    }
    return select(rest, -rest, x < 0.0f);
}""",
    "hypot": """fn kk_hypot(x: f32, y: f32) -> f32 {
    let large = max(abs(x), abs(y));
    if (large == 0.0f) { return large; }
    let ratio = min(abs(x), abs(y)) / large;
    return large * sqrt(1.0f + ratio * ratio);
}""",
    "copysign": """fn kk_copysign(x: f32, y: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(x) & 0x7fffffffu) | (bitcast<u32>(y) & 0x80000000u));
}""",
    "fdim": "fn kk_fdim(x: f32, y: f32) -> f32 { return select(0.0f, x - y, x > y); }",
    "mix": "fn kk_mix(a: f32, b: f32, t: f32) -> f32 { return a + (b - a) * t; }",
    "isnan": "fn kk_isnan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }",
    "isinf": "fn kk_isinf(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }",
    "isfinite": "fn kk_isfinite(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) < 0x7f800000u; }",
    "signbit": "fn kk_signbit(x: f32) -> bool { return (bitcast<u32>(x) & 0x80000000u) != 0u; }",
}
