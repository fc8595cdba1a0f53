//kk: kernel gemm a:buffer:?:r b:buffer:?:r c:buffer:?:rw alpha:scalar:f4 beta:scalar:f4 m:scalar:i4 n:scalar:i4 k:scalar:i4
// C = alpha A B + beta C for matrices of 16-bit floats (half or bfloat16), row-major, with sums in float32.
// n and k are multiples of 8: rows begin at multiples of 16 bytes.
//
// A group computes BLOCK_M × BLOCK_N of C with eight warps, two above each other. Pieces of A and B, 32 deep, are copied to STAGES
// places in shared memory, whose parts of 16 bytes are swizzled so that no two lanes meet in a bank.
#if BFLOAT
#define HALF_KIND "bf16"
#else
#define HALF_KIND "f16"
#endif
#include "half_results.h"
#include "tile_order.h"

#define THREADS 256
#define DEPTH 32
#define A_BYTES (BLOCK_M * DEPTH * 2)
#define B_BYTES (BLOCK_N * DEPTH * 2)
#define STAGE_BYTES (A_BYTES + B_BYTES)
#define WARP_M (BLOCK_M / 2)
#define WARP_N (BLOCK_N / 4)

// Zeros where it is not inside.
__device__ __forceinline__ void copy16(unsigned to, const void* from, bool inside) {
  int bytes = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void load4(unsigned (&x)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from));
}
__device__ __forceinline__ void load4_turned(unsigned (&x)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from));
}
__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." HALF_KIND "." HALF_KIND ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm(const unsigned short* a, const unsigned short* b, unsigned short* c, float alpha, float beta, int m, int n, int k) {
  extern __shared__ __align__(128) unsigned char memory[];
  unsigned tiles = (unsigned)__cvta_generic_to_shared(memory);
  Place at = place_of(blockIdx.x, (m + BLOCK_M - 1) / BLOCK_M, (n + BLOCK_N - 1) / BLOCK_N);
  int row0 = at.row * BLOCK_M, col0 = at.column * BLOCK_N;
  int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  int steps = (k + DEPTH - 1) / DEPTH;

  auto fetch = [&](int step) {
    unsigned to = tiles + step % STAGES * STAGE_BYTES;
    int depth0 = step * DEPTH;
    if (step < steps) {
#pragma unroll
      for (int i = 0; i < A_BYTES / 16 / THREADS; i++) {
        int e = thread + i * THREADS, row = e / 4, part = e % 4;
        bool inside = row0 + row < m && depth0 + part * 8 < k;
        copy16(to + row * 64 + ((part ^ (row / 2 % 4)) << 4), inside ? a + (long long)(row0 + row) * k + depth0 + part * 8 : a, inside);
      }
#pragma unroll
      for (int i = 0; i < B_BYTES / 16 / THREADS; i++) {
        int e = thread + i * THREADS, depth = e / (BLOCK_N / 8), part = e % (BLOCK_N / 8);
        bool inside = depth0 + depth < k && col0 + part * 8 < n;
        copy16(to + A_BYTES + depth * BLOCK_N * 2 + ((part ^ (depth % 8)) << 4), inside ? b + (long long)(depth0 + depth) * n + col0 + part * 8 : b, inside);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

  float sums[WARP_M / 16][WARP_N / 8][4];
#pragma unroll
  for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
    for (int j = 0; j < WARP_N / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) sums[i][j][e] = 0.0f;
  for (int step = 0; step < STAGES - 1; step++) fetch(step);
  int warp_row = warp / 4 * WARP_M, warp_col = warp % 4 * WARP_N;
  for (int step = 0; step < steps; step++) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();
    fetch(step + STAGES - 1);
    unsigned from = tiles + step % STAGES * STAGE_BYTES;
#pragma unroll
    for (int d = 0; d < DEPTH / 16; d++) {
      unsigned x[WARP_M / 16][4], y[WARP_N / 16][4];
#pragma unroll
      for (int i = 0; i < WARP_M / 16; i++) {
        int row = warp_row + i * 16 + lane % 16, part = d * 2 + lane / 16;
        load4(x[i], from + row * 64 + ((part ^ (row / 2 % 4)) << 4));
      }
#pragma unroll
      for (int j = 0; j < WARP_N / 16; j++) {
        int depth = d * 16 + lane % 16, part = (warp_col + j * 16) / 8 + lane / 16;
        load4_turned(y[j], from + A_BYTES + depth * BLOCK_N * 2 + ((part ^ (depth % 8)) << 4));
      }
#pragma unroll
      for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
        for (int j = 0; j < WARP_N / 16; j++) {
          multiply(sums[i][2 * j], x[i], y[j][0], y[j][1]);
          multiply(sums[i][2 * j + 1], x[i], y[j][2], y[j][3]);
        }
    }
  }

#pragma unroll
  for (int i = 0; i < WARP_M / 16; i++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
      for (int j = 0; j < WARP_N / 32; j++) {
        float values[8];
#pragma unroll
        for (int e = 0; e < 8; e++) values[e] = sums[i][4 * j + e / 2][half * 2 + e % 2];
        int row = row0 + warp_row + i * 16 + half * 8 + lane / 4;
        write_eight(c, values, alpha, beta, row, col0 + warp_col + j * 32, m, n);
      }
    }
  }
}
