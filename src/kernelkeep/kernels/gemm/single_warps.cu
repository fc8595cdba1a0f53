//kk: kernel gemm a:buffer:f4:r b:buffer:f4:r c:buffer:f4:rw alpha:scalar:f4 beta:scalar:f4 m:scalar:i4 n:scalar:i4 k:scalar:i4
// C = alpha A B + beta C for float32 matrices, row-major, of any sizes, on matrix units that take TF32, a float32 with 11 bits.
//
// Each number is the sum of two of 11 bits, of which three products are added: float32's precision. The units' sums are cut off,
// not rounded, so after a depth of CHUNK they go to sums of ours.
//
// A group computes BLOCK_M × BLOCK_N of C. Pieces of A and B, DEPTH deep, are copied to STAGES places in shared memory while others
// are multiplied. One copy takes VECTOR_K numbers of A and VECTOR_N of B, as far as all rows begin at multiples of so many.
//
// SLICES groups share a tile of C, a cluster: each adds up a part along k, then each adds up the sums of all for its rows of the
// tile, always in the same order. So a C of few tiles and long sums keeps the whole GPU busy.
#define BAND 8
#include "clusters.h"
#include "tile_order.h"

#define WARPS (BLOCK_M * BLOCK_N >= 8192 ? 8 : 4)
#define THREADS (32 * WARPS)
#define WARPS_M (BLOCK_M == 16 ? 1 : BLOCK_N == 16 ? WARPS : WARPS == 8 && BLOCK_M > BLOCK_N ? 4 : 2)
#define WARP_M (BLOCK_M / WARPS_M)
#define WARP_N (BLOCK_N / (WARPS / WARPS_M))
#define CHUNK 128
// Rows in shared memory are so far apart that no two lanes meet in a bank.
#define A_STRIDE (DEPTH + 8)
#define B_STRIDE (BLOCK_N + 4)
#define C_STRIDE (BLOCK_N + 8)
#define STAGE (BLOCK_M * A_STRIDE + DEPTH * B_STRIDE)
#define A_COPIES (BLOCK_M * DEPTH / VECTOR_K)
#define B_COPIES (BLOCK_N * DEPTH / VECTOR_N)
#define A_LOADS ((A_COPIES + THREADS - 1) / THREADS)
#define B_LOADS ((B_COPIES + THREADS - 1) / THREADS)
#define A_DOWN (THREADS / (DEPTH / VECTOR_K))   // rows of A that all threads copy at a time
#define B_DOWN (THREADS / (BLOCK_N / VECTOR_N))
#define OUTS (BLOCK_M / SLICES * BLOCK_N)   // elements of C that a group stores
#define ROUNDS ((OUTS + THREADS * VECTOR_N - 1) / (THREADS * VECTOR_N))
#define AT_ONCE (ROUNDS < 4 ? ROUNDS : 4)
// The nearest number of 11 bits. NaN may become 0, but what is left of it then is NaN.
#define ROUNDED(x) (((x) + 0x1000u) & 0xffffe000u)

// N numbers from global to shared memory, of which the first `there` bytes are read, and the others are zero.
template <int N>
__device__ __forceinline__ void copy(unsigned to, const float* from, int there) {
  if constexpr (N == 4)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(4 * N), "r"(there) : "memory");
}

template <int N>
__device__ __forceinline__ void copy(unsigned to, const float* from) {
  if constexpr (N == 4)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(4 * N) : "memory");
}

__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void split(float x, unsigned& high, unsigned& low) {
  high = ROUNDED(__float_as_uint(x));
  low = __float_as_uint(x - __uint_as_float(high));
}

// One element with ordinary arithmetic: infinities and NaN do not survive the splitting.
__device__ __noinline__ float plain_sum(const float* a, const float* b, int n, int k) {
  float sum = 0.0f;
  for (int i = 0; i < k; i++) sum += a[i] * b[(long long)i * n];
  return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
#if SLICES > 1
    __cluster_dims__(SLICES, 1, 1)
#endif
    gemm(const float* __restrict__ a, const float* __restrict__ b, float* c, float alpha, float beta, int m, int n, int k) {
  extern __shared__ __align__(128) float memory[];
  unsigned tiles = (unsigned)__cvta_generic_to_shared(memory);
  int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  int slice = blockIdx.x % SLICES;
  Place at = place_of(blockIdx.x / SLICES, (m + BLOCK_M - 1) / BLOCK_M, (n + BLOCK_N - 1) / BLOCK_N);
  int row0 = at.row * BLOCK_M, col0 = at.column * BLOCK_N;
  long long all_steps = (k + DEPTH - 1) / DEPTH;
  int first_step = (int)(all_steps * slice / SLICES), steps = (int)(all_steps * (slice + 1) / SLICES) - first_step;

  // What a thread copies in each step. Rows and columns outside the matrices are left as they are: they reach only sums that are
  // not stored. (Copies of one number to many places would take a turn each.)
  int a_depth = thread % (DEPTH / VECTOR_K) * VECTOR_K, b_depth = thread / (BLOCK_N / VECTOR_N);
  int a_row = thread / (DEPTH / VECTOR_K), b_col = thread % (BLOCK_N / VECTOR_N) * VECTOR_N;
  int a_from[A_LOADS];
#pragma unroll
  for (int i = 0; i < A_LOADS; i++) a_from[i] = min(row0 + a_row + i * A_DOWN, m - 1) * k;
  const float* a_next = a + first_step * DEPTH + a_depth;
  const float* b_next = b + (long long)(first_step * DEPTH + b_depth) * n + min(col0 + b_col, n - VECTOR_N);
  unsigned a_to = tiles + 4 * (a_row * A_STRIDE + a_depth);
  unsigned b_to = tiles + 4 * (BLOCK_M * A_STRIDE + b_depth * B_STRIDE + b_col);
  int left = k - first_step * DEPTH;  // of k, from the next step on
  int a_rows = m - row0 - a_row;      // from the thread's first row on
  bool b_there = col0 + b_col < n;

  auto fetch = [&](int step) {
    if (step < steps) {
      unsigned stage = step % STAGES * (4 * STAGE);
      if (left >= DEPTH) {
#pragma unroll
        for (int i = 0; i < A_LOADS; i++)
          if (i * A_DOWN < a_rows && (A_COPIES % THREADS == 0 || thread + i * THREADS < A_COPIES))
            copy<VECTOR_K>(a_to + stage + 4 * i * A_DOWN * A_STRIDE, a_next + a_from[i]);
#pragma unroll
        for (int i = 0; i < B_LOADS; i++)
          if (b_there && (B_COPIES % THREADS == 0 || thread + i * THREADS < B_COPIES))
            copy<VECTOR_N>(b_to + stage + 4 * i * B_DOWN * B_STRIDE, b_next + i * B_DOWN * n);
      } else {  // the last step: what is past the end is zero
#pragma unroll
        for (int i = 0; i < A_LOADS; i++) {
          bool inside = a_depth < left;
          if (i * A_DOWN < a_rows && (A_COPIES % THREADS == 0 || thread + i * THREADS < A_COPIES))
            copy<VECTOR_K>(a_to + stage + 4 * i * A_DOWN * A_STRIDE, inside ? a_next + a_from[i] : a, inside ? 4 * VECTOR_K : 0);
        }
#pragma unroll
        for (int i = 0; i < B_LOADS; i++) {
          bool inside = b_depth + i * B_DOWN < left;
          if (b_there && (B_COPIES % THREADS == 0 || thread + i * THREADS < B_COPIES))
            copy<VECTOR_N>(b_to + stage + 4 * i * B_DOWN * B_STRIDE, inside ? b_next + i * B_DOWN * n : b, inside ? 4 * VECTOR_N : 0);
        }
      }
      a_next += DEPTH, b_next += (long long)DEPTH * n, left -= DEPTH;
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

  float total[WARP_M / 16][WARP_N / 8][4], sums[WARP_M / 16][WARP_N / 8][4];
#pragma unroll
  for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
    for (int j = 0; j < WARP_N / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) total[i][j][e] = sums[i][j][e] = 0.0f;

  // A lane's place in the units' tiles: of A rows `line` and line + 8, of B column `line`; numbers 2·pair and 2·pair + 1 along k.
  int line = lane / 4, pair = lane % 4;
  int warp_row = warp % WARPS_M * WARP_M, warp_col = warp / WARPS_M * WARP_N;
  const float* a_part = memory + (warp_row + line) * A_STRIDE + 2 * pair;
  const float* b_part = memory + BLOCK_M * A_STRIDE + 2 * pair * B_STRIDE + warp_col + line;
  for (int step = 0; step < STAGES - 1; step++) fetch(step);
  for (int step = 0; step < steps; step++) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();
    fetch(step + STAGES - 1);
    int stage = step % STAGES * STAGE;
#pragma unroll
    for (int d = 0; d < DEPTH; d += 8) {
      unsigned x[WARP_M / 16][4], x_low[WARP_M / 16][4], y[WARP_N / 8][2], y_low[WARP_N / 8][2];
#pragma unroll
      for (int i = 0; i < WARP_M / 16; i++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          float2 v = *(const float2*)(a_part + stage + (i * 16 + half * 8) * A_STRIDE + d);
          split(v.x, x[i][half], x_low[i][half]);
          split(v.y, x[i][2 + half], x_low[i][2 + half]);
        }
      }
#pragma unroll
      for (int j = 0; j < WARP_N / 8; j++) {
#pragma unroll
        for (int e = 0; e < 2; e++) split(b_part[stage + (d + e) * B_STRIDE + j * 8], y[j][e], y_low[j][e]);
      }
#pragma unroll
      for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
        for (int j = 0; j < WARP_N / 8; j++) multiply(sums[i][j], x_low[i], y[j]);
#pragma unroll
      for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
        for (int j = 0; j < WARP_N / 8; j++) multiply(sums[i][j], x[i], y_low[j]);
#pragma unroll
      for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
        for (int j = 0; j < WARP_N / 8; j++) multiply(sums[i][j], x[i], y[j]);
    }
    if ((step + 1) % (CHUNK / DEPTH) == 0 || step + 1 == steps) {
#pragma unroll
      for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
        for (int j = 0; j < WARP_N / 8; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) total[i][j][e] += sums[i][j][e], sums[i][j][e] = 0.0f;
    }
  }

  // All pieces are used up: their memory takes the tile's sums.
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
#pragma unroll
  for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
    for (int j = 0; j < WARP_N / 8; j++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        *(float2*)(memory + (warp_row + i * 16 + half * 8 + line) * C_STRIDE + warp_col + j * 8 + 2 * pair) =
            make_float2(total[i][j][2 * half], total[i][j][2 * half + 1]);
#if SLICES > 1
  cluster_sync();
#else
  __syncthreads();
#endif
  // All reads of a few elements come before their stores: each takes its time.
  for (int first = thread * VECTOR_N; first < OUTS; first += AT_ONCE * THREADS * VECTOR_N) {
    float value[AT_ONCE][VECTOR_N];
#pragma unroll
    for (int other = 0; other < SLICES; other++) {
#pragma unroll
      for (int u = 0; u < AT_ONCE; u++) {
        int e = first + u * THREADS * VECTOR_N, at = (slice * (BLOCK_M / SLICES) + e / BLOCK_N) * C_STRIDE + e % BLOCK_N;
        float more[VECTOR_N];
#if SLICES > 1
        read_from_cluster<VECTOR_N>(more, tiles + 4 * at, other);
#else
        read<VECTOR_N>(more, memory + at);
#endif
#pragma unroll
        for (int i = 0; i < VECTOR_N; i++) value[u][i] = other == 0 ? more[i] : value[u][i] + more[i];
      }
    }
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++) {
      int e = first + u * THREADS * VECTOR_N, row = row0 + slice * (BLOCK_M / SLICES) + e / BLOCK_N, col = col0 + e % BLOCK_N;
      if (row < m && col < n) {
        float* to = c + (long long)row * n + col;
#pragma unroll
        for (int i = 0; i < VECTOR_N; i++) {
          if (!(fabsf(value[u][i]) <= 3.4028234e38f)) value[u][i] = plain_sum(a + (long long)row * k, b + col + i, n, k);
          value[u][i] = beta != 0.0f ? alpha * value[u][i] + beta * to[i] : alpha * value[u][i];
        }
        write<VECTOR_N>(to, value[u]);
      }
    }
  }
#if SLICES > 1
  cluster_sync();  // others may still read here
#endif
}
