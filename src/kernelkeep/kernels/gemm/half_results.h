// What kernels for half and bfloat16 do with their sums.

#if BFLOAT
__device__ __forceinline__ float widened(unsigned x) { return __uint_as_float(x << 16); }
__device__ __forceinline__ unsigned packed(float low, float high) {
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
#else
__device__ __forceinline__ float widened(unsigned x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"((unsigned short)x));
  return wide;
}
__device__ __forceinline__ unsigned packed(float low, float high) {
  unsigned both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
#endif

// Writes 32 columns of a row from `column` on, of which each of four neighbouring threads has a pair in every eight.
// The four exchange theirs, so that each has eight neighbours, 16 bytes, to write. All threads of a warp take part.
__device__ __forceinline__ void write_eight(
    unsigned short* c, const float (&values)[8], float alpha, float beta, int row, int column, int m, int n) {
  bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
  int at = column + threadIdx.x % 4 * 8;
  bool inside = row < m && at < n;
  uint4* to = (uint4*)(c + (long long)row * n + at);
  unsigned p[4], one, two;
  if (beta == 0.0f) {
#pragma unroll
    for (int i = 0; i < 4; i++) p[i] = packed(alpha * values[2 * i], alpha * values[2 * i + 1]);
  } else {
    // What C holds now goes the other way first.
    uint4 old = inside ? *to : make_uint4(0, 0, 0, 0);
    unsigned q[4] = {old.x, old.y, old.z, old.w};
    one = __shfl_xor_sync(~0u, upper ? q[0] : q[2], 2), two = __shfl_xor_sync(~0u, upper ? q[1] : q[3], 2);
    if (upper) q[0] = one, q[1] = two; else q[2] = one, q[3] = two;
    one = __shfl_xor_sync(~0u, odd ? q[0] : q[1], 1), two = __shfl_xor_sync(~0u, odd ? q[2] : q[3], 1);
    if (odd) q[0] = one, q[2] = two; else q[1] = one, q[3] = two;
#pragma unroll
    for (int i = 0; i < 4; i++)
      p[i] = packed(
          alpha * values[2 * i] + beta * widened(q[i] & 0xffff), alpha * values[2 * i + 1] + beta * widened(q[i] >> 16));
  }
  one = __shfl_xor_sync(~0u, odd ? p[0] : p[1], 1), two = __shfl_xor_sync(~0u, odd ? p[2] : p[3], 1);
  if (odd) p[0] = one, p[2] = two; else p[1] = one, p[3] = two;
  one = __shfl_xor_sync(~0u, upper ? p[0] : p[2], 2), two = __shfl_xor_sync(~0u, upper ? p[1] : p[3], 2);
  if (upper) p[0] = one, p[1] = two; else p[2] = one, p[3] = two;
  if (inside) *to = make_uint4(p[0], p[1], p[2], p[3]);
}
